// Package arch holds the tests that keep the import rules and the bans of ARCHITECTURE.md.
package arch
