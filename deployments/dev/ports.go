package main

import (
	"fmt"

	"omniroute/deployments/dev/temporaldev"
)

// port is an address somebody of this process will listen on, and the flag that moves it.
type port struct{ owner, flag, address string }

// checkPorts names the first address that is taken, or that two owners want.
func checkPorts(ports []port) error {
	wanted := map[string]port{}
	for _, p := range ports {
		if p.address == "" {
			continue
		}
		if other, twice := wanted[p.address]; twice && !anyPort(p.address) {
			return fmt.Errorf("%s and %s cannot both listen on %s: change --%s", other.owner, p.owner, p.address, p.flag)
		}
		wanted[p.address] = p
		if err := temporaldev.CheckFree(p.address); err != nil {
			return fmt.Errorf("%s cannot listen on %s: %w; choose another address with --%s", p.owner, p.address, err, p.flag)
		}
	}
	return nil
}
