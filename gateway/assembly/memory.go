package assembly

import (
	"os"
	"runtime"
	"runtime/debug"
)

// collectAt is how far the heap may grow beyond what is alive before it is collected, in
// percent. A gateway keeps a few megabytes alive and makes tens of kilobytes of garbage per
// request: at the default of 100 it would collect many times a second for nothing. A thousand
// streams keep about 30 MB alive.
const collectAt = 300

// tuneMemory gives back what only the start needed, which are tens of megabytes that would
// otherwise set the size of the heap and be given back beside the requests. Then it sets the
// pace of garbage collection unless the operator has (GOGC).
func tuneMemory() {
	runtime.GC() // what pools keep survives a first collection
	debug.FreeOSMemory()
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(collectAt)
	}
}
