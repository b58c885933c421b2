package demo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/deployments/dev/demo"
	"omniroute/models/secrets"
)

func TestTheDemoCatalogIsValidAndItsScriptNamesItsCredentials(t *testing.T) {
	doc, err := demo.Document("http://127.0.0.1:20130/v1", secrets.NewAPIKey())
	require.NoError(t, err)

	credentials := map[string]bool{}
	for _, c := range doc.Connections {
		require.NotNil(t, c.Credential, c.ID)
		credentials["demo-credential-"+string(c.ID)] = true
	}
	for _, rule := range demo.Script().Rules {
		require.Contains(t, credentials, rule.Key)
	}
	names := []string{}
	for _, combo := range doc.Combos {
		names = append(names, combo.Name)
	}
	require.Contains(t, names, demo.Model)
}

func TestAFirstStartWithoutTheDemoHasAKeyAndNoProvider(t *testing.T) {
	doc, err := demo.KeyOnly(secrets.NewAPIKey())
	require.NoError(t, err)
	require.Len(t, doc.APIKeys, 1)
	require.Empty(t, doc.Providers)
}
