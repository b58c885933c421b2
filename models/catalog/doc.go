// Package catalog holds what operators configure: the GORM entities, the settings document,
// and the immutable snapshot the hot path reads.
package catalog
