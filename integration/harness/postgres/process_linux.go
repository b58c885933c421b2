package postgres

import "syscall"

// processAttributes makes the server end with the test process, however that ends. SIGQUIT
// is Postgres' immediate shutdown: it takes its own children with it.
func processAttributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
