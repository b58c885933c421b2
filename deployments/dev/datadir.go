package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"omniroute/models/secrets"
)

// dataDir is the folder that one omniroute-dev owns while it runs.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the folder, proves that it can be written and takes its lock. The kernel
// frees the lock when the process ends, however it ends.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory %s cannot be made: %w", path, plain(err))
	}
	lock, err := os.OpenFile(filepath.Join(path, "omniroute-dev.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be written: %w", path, plain(err))
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner := make([]byte, 32)
		n, _ := lock.Read(owner)
		_ = lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s cannot be locked: %w", path, err)
		}
		return nil, fmt.Errorf("data directory %s is in use by another omniroute-dev (process %s): stop it, or choose another with --data-dir",
			path, strings.TrimSpace(string(owner[:n])))
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.writable(); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s cannot be written: %w", path, plain(err)), d.close())
	}
	return d, nil
}

// writable leaves this process's number in the lock file; it also finds a full disk.
func (d *dataDir) writable() error {
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	if _, err := d.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.path, ".probe"), nil, 0o600)
}

func (d *dataDir) close() error {
	_ = os.Remove(filepath.Join(d.path, ".probe"))
	return d.lock.Close()
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// keepKeyRing makes the key ring at the first start and leaves it alone for ever after:
// without it every stored credential is lost.
func (d *dataDir) keepKeyRing(file string) error {
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ring, err := secrets.GenerateKeyRing()
	if err != nil {
		return err
	}
	return writePrivate(file, ring+"\n")
}

// access is what a person or a script needs to call this system. It is kept in demo.env.
type access struct {
	url, apiKey, adminToken, temporalUI string
}

const accessFile = "demo.env"

// loadAccess reads demo.env; what it lacks is empty.
func (d *dataDir) loadAccess() (access, error) {
	f, err := os.Open(d.file(accessFile))
	if errors.Is(err, fs.ErrNotExist) {
		return access{}, nil
	}
	if err != nil {
		return access{}, err
	}
	defer func() { _ = f.Close() }()
	var a access
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		switch name {
		case "OMNIROUTE_API_KEY":
			a.apiKey = value
		case "OMNIROUTE_ADMIN_TOKEN":
			a.adminToken = value
		}
	}
	return a, lines.Err()
}

func (d *dataDir) saveAccess(a access) error {
	return writePrivate(d.file(accessFile), fmt.Sprintf(
		"OMNIROUTE_URL=%s\nOMNIROUTE_API_KEY=%s\nOMNIROUTE_ADMIN_TOKEN=%s\nTEMPORAL_UI_URL=%s\n",
		a.url, a.apiKey, a.adminToken, a.temporalUI))
}

// writePrivate replaces a file in one step, readable by its owner only.
func writePrivate(file, text string) error {
	draft := file + ".new"
	if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(draft, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, file)
}

// plain drops the operation and the path that the message around it names already.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
