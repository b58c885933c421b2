// Package demo is the catalog and the scripted provider that a first start of omniroute-dev
// brings, so that the first call works without any real key and there is something to see.
package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"text/template"

	"omniroute/integration/fakeprovider"
	"omniroute/models/catalog"
)

// Model is the name the banner's curl calls: a combo whose first key is rate limited at the
// first call, so that the answer comes from the second key and a cooldown can be watched.
const Model = "demo"

//go:embed catalog.yaml
var catalogFile string

// Document is the demo's catalog against a scripted provider at baseURL, with one API key
// for the person who starts it.
func Document(baseURL, apiKey string) (*catalog.Document, error) {
	t, err := template.New("catalog.yaml").Parse(catalogFile)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, map[string]string{"BaseURL": baseURL}); err != nil {
		return nil, err
	}
	env := func(name string) (string, bool) { return apiKey, name == "DEMO_API_KEY" }
	doc, err := catalog.ParseDocument(&text, "demo catalog", env)
	if err != nil {
		return nil, fmt.Errorf("demo catalog: %w", err)
	}
	return doc, nil
}

// KeyOnly is the catalog of a first start without the demo: an API key and nothing else.
func KeyOnly(apiKey string) (*catalog.Document, error) {
	env := func(name string) (string, bool) { return apiKey, name == "DEMO_API_KEY" }
	text := "apiKeys: [{name: dev, key: \"${DEMO_API_KEY}\", scopes: [inference]}]\n"
	return catalog.ParseDocument(bytes.NewBufferString(text), "first key", env)
}

// Script is what the scripted provider does behind the demo's connections.
func Script() fakeprovider.Script {
	limited := fakeprovider.Step{
		Status: 429, Headers: map[string]string{"Retry-After": "30"},
		Body: `{"error":{"message":"Rate limit reached for this key. Please retry in 30s.","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`,
	}
	overloaded := fakeprovider.Step{
		Status: 503,
		Body:   `{"error":{"message":"The engine is currently overloaded.","type":"server_error","param":null,"code":null}}`,
	}
	return fakeprovider.Script{Rules: []fakeprovider.Rule{
		{Key: "demo-credential-limited-1", Model: fakeprovider.Any, Cycle: true, Steps: []fakeprovider.Step{limited, {Times: 4, PaceMs: 10}}},
		{Key: "demo-credential-limited-2", Model: fakeprovider.Any, Steps: []fakeprovider.Step{{PaceMs: 10}}},
		{Key: "demo-credential-slow-1", Model: fakeprovider.Any, Steps: []fakeprovider.Step{{LatencyMs: 2000, PaceMs: 100}}},
		{Key: "demo-credential-slow-2", Model: fakeprovider.Any, Steps: []fakeprovider.Step{{LatencyMs: 2000, PaceMs: 100}}},
		{Key: "demo-credential-failing-1", Model: fakeprovider.Any, Steps: []fakeprovider.Step{overloaded}},
		{Key: "demo-credential-failing-2", Model: fakeprovider.Any, Steps: []fakeprovider.Step{overloaded}},
	}}
}
