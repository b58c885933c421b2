// Command record runs the workflows through scripted lives on a real Temporal server and
// keeps the histories of the current shape under workflows/testdata, where every test run
// replays them. A history that is there is kept: it is what a release has left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/workflows"
)

func main() {
	out := flag.String("out", "../../workflows/testdata", "folder of the histories")
	flag.Parse()
	if err := record(filepath.Join(*out, workflows.Shape)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func record(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "omniroute-record-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := newStage(ctx, work, log, shortLives)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, scene := range scenes {
		path := filepath.Join(dir, scene.name+".json")
		if _, err := os.Stat(path); err == nil {
			fmt.Println("kept    ", path)
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		run, err := scene.play(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", scene.name, err)
		}
		history, err := s.history(ctx, run)
		if err != nil {
			return fmt.Errorf("%s: %w", scene.name, err)
		}
		if err := os.WriteFile(path, history, 0o644); err != nil {
			return err
		}
		fmt.Println("recorded", path)
	}
	return nil
}
