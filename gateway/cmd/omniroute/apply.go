package main

import (
	"context"
	"fmt"
	"os"

	"omniroute/models/catalog"
	"omniroute/models/store"
)

type applyCmd struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"The catalog file; - reads standard input."`
	DryRun bool   `help:"Say what would change, and change nothing."`
	Prune  bool   `help:"Delete what a named section of the file does not list."`
	catalogGroup
}

// Run applies the file and prints the difference. Every problem of the file is listed with
// its path and line, and then nothing of it is applied.
func (c applyCmd) Run(ctx context.Context, p *process) error {
	doc, err := readCatalog(c.File, p)
	if err != nil {
		return err
	}
	return c.with(ctx, p, func(s *store.Store) error {
		diff, err := s.Apply(ctx, doc, store.ApplyOptions{DryRun: c.DryRun, Prune: c.Prune, Actor: actor()})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.stdout, diff)
		return err
	})
}

func readCatalog(file string, p *process) (*catalog.Document, error) {
	if file == "-" {
		return catalog.ParseDocument(p.stdin, "stdin", p.getenv)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("catalog file: %w", err)
	}
	defer f.Close()
	return catalog.ParseDocument(f, file, p.getenv)
}

type exportCmd struct {
	Output string `short:"o" default:"-" placeholder:"FILE" help:"Where to write; - is standard output."`
	catalogGroup
}

// Run writes the catalog as the document that would make it. Credentials and keys are
// placeholders: what is sealed or hashed does not leave the database.
func (c exportCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		doc, err := s.Export(ctx)
		if err != nil {
			return err
		}
		text, err := doc.YAML()
		if err != nil {
			return err
		}
		if c.Output == "-" {
			_, err = p.stdout.Write(text)
			return err
		}
		return os.WriteFile(c.Output, text, 0o600)
	})
}
