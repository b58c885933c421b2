// Command omniroute is the gateway, the worker and their tools in one binary.
package main

import "os"

func main() {
	os.Exit(run(process{
		args: os.Args[1:], environ: os.Environ(),
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}))
}
