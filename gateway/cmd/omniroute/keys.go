package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"omniroute/gateway/config"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

type keysCmd struct {
	Create keysCreateCmd `cmd:"" help:"Make a key and print it, this once."`
	List   keysListCmd   `cmd:"" help:"List the keys; their values are not stored."`
	Revoke keysRevokeCmd `cmd:"" help:"Take a key out of use, at once and for good."`
	Reseal keysResealCmd `cmd:"" help:"Seal every credential anew with the first encryption key, so that older ones can go."`
}

type keysCreateCmd struct {
	Name        string        `arg:"" help:"What the key is for; unique."`
	Scopes      []string      `name:"scope" placeholder:"SCOPE" help:"inference or manage; repeat or separate with commas. Default: inference."`
	Connections []string      `name:"connection" placeholder:"ID" help:"A connection the key may use; repeat for more. Default: all."`
	Models      []string      `name:"model" placeholder:"NAME" help:"A model or combo the key may call; repeat for more. Default: all."`
	ExpiresIn   time.Duration `placeholder:"DURATION" help:"How long the key is valid. Default: for good."`
	catalogGroup
}

// Run prints the key on standard output and everything about it on standard error, so that
// a script can capture the one and a person sees the other.
func (c keysCreateCmd) Run(ctx context.Context, p *process) error {
	if c.ExpiresIn < 0 {
		return config.UsageError{Err: errors.New("expires-in: a key that has expired already is of no use")}
	}
	key := store.NewKey{Name: c.Name, Scopes: c.Scopes, AllowedModels: c.Models, Actor: actor()}
	if len(key.Scopes) == 0 {
		key.Scopes = []string{catalog.ScopeInference}
	}
	for _, id := range c.Connections {
		key.AllowedConnections = append(key.AllowedConnections, models.ConnectionID(id))
	}
	if c.ExpiresIn > 0 {
		key.ExpiresAt = time.Now().Add(c.ExpiresIn)
	}
	return c.with(ctx, p, func(s *store.Store) error {
		info, clear, err := s.CreateKey(ctx, key)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(p.stderr, "key %s (%s), scopes %s. It is shown this once:\n", info.Name, info.ID, strings.Join(info.Scopes, ", "))
		_, err = fmt.Fprintln(p.stdout, clear)
		return err
	})
}

type keysListCmd struct{ catalogGroup }

// Run lists the keys.
func (c keysListCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		keys, err := s.ListKeys(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "ID\tNAME\tSCOPES\tCONNECTIONS\tMODELS\tEXPIRES\tCREATED")
		for _, k := range keys {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name,
				strings.Join(k.Scopes, ","), allOr(k.AllowedConnections), allOr(k.AllowedModels),
				orNever(k.ExpiresAt), k.CreatedAt.UTC().Format(time.RFC3339))
		}
		return table.Flush()
	})
}

func allOr[T ~string](allowed []T) string {
	if len(allowed) == 0 {
		return "all"
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return strings.Join(names, ",")
}

func orNever(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

type keysRevokeCmd struct {
	Key string `arg:"" help:"The key's id or name."`
	catalogGroup
}

// Run revokes a key. Replicas refuse it as soon as their snapshot has seen the change.
func (c keysRevokeCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		info, err := s.RevokeKey(ctx, c.Key, actor())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "revoked %s (%s)\n", info.Name, info.ID)
		return err
	})
}

type keysResealCmd struct{ catalogGroup }

// Run ends a rotation of the encryption keys: afterwards only the first key is needed to open
// credentials. The last one stays: it is what the hashes of API keys are made with.
func (c keysResealCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		resealed, err := s.Reseal(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "sealed %d credentials anew\n", resealed)
		return err
	})
}
