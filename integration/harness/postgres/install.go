package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"
)

// errMissing is a failure, not a reason to skip: a suite that quietly leaves Postgres out
// says nothing about Postgres.
var errMissing = errors.New("PostgreSQL is not installed, and these tests need it: no initdb in PATH, " +
	"in /usr/lib/postgresql/*/bin, in /usr/local/pgsql/bin or in Homebrew's directories; " +
	"install it (apt-get install postgresql, brew install postgresql) and run the tests again")

// findBinaries returns the directory that has initdb and postgres side by side.
func findBinaries() (string, error) {
	var candidates []string
	if found, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(found); err == nil {
			candidates = append(candidates, filepath.Dir(real))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern) //nolint:errcheck // the patterns are well formed
		sort.Sort(sort.Reverse(sort.StringSlice(found)))
		candidates = append(candidates, found...)
	}
	for _, dir := range candidates {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errMissing
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// unprivileged is whom the server runs as when the tests run as root, which Postgres
// refuses; nil when they do not.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("the tests run as root, and there is neither a user postgres nor nobody to run PostgreSQL as")
}
