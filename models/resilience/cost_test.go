package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// typical is a connection that has cooled down and has a few models out.
func typical() Connection {
	var c Connection
	c, _ = c.Fail(rateLimited(noon), accountPolicy)
	for i := range 3 {
		c, _ = c.FailModel(key(i), rateLimited(noon), lockoutDefaults.Cooldown())
	}
	return c
}

func TestWhatEveryAttemptAsksOfAConnectionAllocatesNothing(t *testing.T) {
	c, now := typical(), after(time.Minute)
	other, second := c, key(1)
	for name, ask := range map[string]func(){
		"fail":    func() { _, _ = c.Fail(rateLimited(now), accountPolicy) },
		"reject":  func() { _, _ = c.Fail(rejected(now), accountPolicy) },
		"expire":  func() { _, _ = c.Fail(unauthorized(now), accountPolicy) },
		"succeed": func() { _, _ = c.Succeed("not out", "f", now) },
		"locked":  func() { _, _ = c.Locked("m001", "f", now) },
		"next":    func() { _ = c.Next(now) },
		"settled": func() { _ = c.Settled() },
		"equal":   func() { _ = c.Equal(other) },
		"trials":  func() { _ = c.Trials("not out", "f", now) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, ask), name)
	}
	lists := map[string]func(){
		"fail a model": func() { _, _ = c.FailModel(second, rateLimited(after(time.Hour)), lockoutDefaults.Cooldown()) },
		"clear one":    func() { _, _ = c.Succeed("m001", "f", now) },
		"join":         func() { _ = JoinConnection(c, other) },
	}
	for name, ask := range lists {
		require.LessOrEqual(t, testing.AllocsPerRun(100, ask), 1.0, name)
	}
}

func BenchmarkConnection(b *testing.B) {
	for _, size := range []struct {
		name string
		c    Connection
	}{{"typical", typical()}, {"full", fullOf(MaxLockouts)}} {
		c, now, second := size.c, after(5*time.Hour), key(1)
		b.Run(size.name+"/fail", func(b *testing.B) {
			for b.Loop() {
				_, _ = c.Fail(rateLimited(now), accountPolicy)
			}
		})
		b.Run(size.name+"/fail a model", func(b *testing.B) {
			for b.Loop() {
				_, _ = c.FailModel(second, rateLimited(now), lockoutDefaults.Cooldown())
			}
		})
		b.Run(size.name+"/succeed", func(b *testing.B) {
			for b.Loop() {
				_, _ = c.Succeed("m001", "f", now)
			}
		})
		b.Run(size.name+"/locked", func(b *testing.B) {
			for b.Loop() {
				_, _ = c.Locked("m001", "f", now)
			}
		})
		b.Run(size.name+"/join", func(b *testing.B) {
			for b.Loop() {
				_ = JoinConnection(c, c)
			}
		})
		b.Run(size.name+"/news", func(b *testing.B) {
			for b.Loop() {
				_ = c.News(c)
			}
		})
	}
}
