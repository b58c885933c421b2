package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"omniroute/deployments/dev/demo"
	"omniroute/integration/fakeprovider"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

// providerFile keeps where the demo's catalog finds the scripted provider.
const providerFile = "demo-provider.url"

// startProvider starts the scripted provider: where the flag says, else where it was last
// time, else on a free port. Its port is nobody's business but the demo catalog's, so one that
// is taken stops no start.
func (s *system) startProvider() (err error) {
	if s.cmd.NoDemo {
		return nil
	}
	s.knownProvider, err = s.data.loadProvider()
	if err != nil {
		return err
	}
	addresses := []string{s.cmd.DemoListen}
	if s.cmd.DemoListen == "" {
		addresses = []string{hostPort(s.knownProvider), "127.0.0.1:0"}
	}
	for _, address := range addresses {
		if address == "" {
			continue
		}
		s.provider, err = fakeprovider.Start(fakeprovider.Options{Addr: address, LogLimit: 200, BodyLimit: 16 << 10})
		if err == nil {
			break
		}
		err = fmt.Errorf("scripted provider on %s: %w", address, err)
	}
	if err != nil {
		return err
	}
	s.onStop(func() error { s.provider.Stop(); return nil })
	return s.provider.Script(demo.Script())
}

// followProvider leads the demo's providers to where the scripted provider listens now. Those
// that an operator has pointed elsewhere, or deleted, are left alone.
func (s *system) followProvider(ctx context.Context) error {
	if s.provider == nil || s.knownProvider == "" || s.knownProvider == s.provider.URL() {
		return nil
	}
	stored, err := s.store.Export(ctx)
	if err != nil {
		return fmt.Errorf("demo catalog: %w", err)
	}
	moved := &catalog.Document{}
	for _, p := range stored.Providers {
		if p.BaseURL == s.knownProvider {
			p.BaseURL = s.provider.URL()
			moved.Providers = append(moved.Providers, p)
		}
	}
	if len(moved.Providers) > 0 {
		if _, err := s.store.Apply(ctx, moved, store.ApplyOptions{Actor: "omniroute-dev"}); err != nil {
			return fmt.Errorf("demo catalog: %w", err)
		}
	}
	return s.rememberProvider()
}

// rememberProvider writes down where the catalog finds the scripted provider.
func (s *system) rememberProvider() error {
	if s.provider == nil {
		return nil
	}
	return writePrivate(s.data.file(providerFile), s.provider.URL()+"\n")
}

// loadProvider is the scripted provider's URL of last time; empty before the first.
func (d *dataDir) loadProvider() (string, error) {
	text, err := os.ReadFile(d.file(providerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// hostPort is the address part of an http URL.
func hostPort(url string) string {
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return address
}
