package admin

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

// A database that does not answer within this time counts as away.
const databaseTimeout = 5 * time.Second

// Apply makes the catalog what the document says, all or nothing, as 'omniroute apply' does.
// ${ENV} finds nothing here: the environment is the operator's, not an API caller's.
func (s *Service) Apply(ctx context.Context, document []byte, o store.ApplyOptions) (*catalog.Diff, error) {
	nothing := func(string) (string, bool) { return "", false }
	doc, err := catalog.ParseDocument(bytes.NewReader(document), "body", nothing)
	var bad *catalog.DocumentError
	if errors.As(err, &bad) {
		return nil, refusal(bad)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	diff, err := s.o.Store.Apply(ctx, doc, o)
	if err != nil {
		return nil, databaseError(err)
	}
	return diff, nil
}

// Export returns the catalog as YAML without any secret.
func (s *Service) Export(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	doc, err := s.o.Store.Export(ctx)
	if err != nil {
		return nil, databaseError(err)
	}
	return doc.YAML()
}

// databaseError is what an API caller is told: a bad document with its places, a database
// that is away with the time after which to try again.
func databaseError(err error) error {
	var bad *catalog.DocumentError
	if errors.As(err, &bad) {
		return refusal(bad)
	}
	var coded *models.Error
	if errors.As(err, &coded) && coded.Code == models.CodeCatalogUnavailable {
		away := models.Errorf(models.CodeCatalogUnavailable, "The catalog's database cannot be reached; nothing was changed. Clients are served from the last snapshot.").WithCause(err)
		away.RetryAfter = databaseTimeout
		return away
	}
	return err
}

// documentProblem is one entry of a refusal's details.
type documentProblem struct {
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// refusal is what the client is told about a bad document.
func refusal(bad *catalog.DocumentError) *models.Error {
	details := make([]documentProblem, len(bad.Problems))
	for i, p := range bad.Problems {
		details[i] = documentProblem{Path: p.Path, Line: p.Line, Message: p.Message}
	}
	refused := models.Errorf(models.CodeInvalidRequest, "The catalog was refused and nothing was changed. %s", bad.Error())
	refused.Details = details
	return refused
}

// diffDocument is a diff as JSON.
type diffDocument struct {
	DryRun   bool             `json:"dryRun"`
	Changes  []changeDocument `json:"changes"`
	Warnings []string         `json:"warnings,omitempty"`
	Summary  string           `json:"summary"`
}

type changeDocument struct {
	Action catalog.Action  `json:"action"`
	Kind   string          `json:"kind"`
	ID     string          `json:"id"`
	Fields []fieldDocument `json:"fields,omitempty"`
}

type fieldDocument struct {
	Name string `json:"name"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new"`
}

// serveApply is POST /api/catalog/apply?dryRun=1&prune=1 with a YAML document as its body.
func (s *Service) serveApply(w http.ResponseWriter, r *http.Request, who principal) error {
	options := store.ApplyOptions{Actor: who.actor}
	for name, field := range map[string]*bool{"dryRun": &options.DryRun, "prune": &options.Prune} {
		if err := queryFlag(r, name, field); err != nil {
			return err
		}
	}
	document, err := readBody(w, r, maxCatalogBytes)
	if err != nil {
		return err
	}
	diff, err := s.Apply(r.Context(), document, options)
	if err != nil {
		return err
	}
	out := diffDocument{DryRun: options.DryRun, Changes: []changeDocument{}, Warnings: diff.Warnings, Summary: diff.String()}
	for _, c := range diff.Changes {
		change := changeDocument{Action: c.Action, Kind: c.Kind, ID: c.ID}
		for _, f := range c.Fields {
			change.Fields = append(change.Fields, fieldDocument(f))
		}
		out.Changes = append(out.Changes, change)
	}
	answer(w, http.StatusOK, out)
	return nil
}

// queryFlag reads a boolean parameter of the query.
func queryFlag(r *http.Request, name string, field *bool) error {
	text := r.URL.Query().Get(name)
	if text == "" {
		return nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return models.Errorf(models.CodeInvalidRequest, "%s is 1 or 0.", name).WithParam(name)
	}
	*field = value
	return nil
}

// serveExport is GET /api/catalog/export.
func (s *Service) serveExport(w http.ResponseWriter, r *http.Request, _ principal) error {
	document, err := s.Export(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(document)
	return nil
}
