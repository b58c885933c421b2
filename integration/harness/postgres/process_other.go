//go:build unix && !linux

package postgres

import "syscall"

// processAttributes cannot tie the server to the test process here; Main and Start's cleanup
// end it.
func processAttributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true}
}
