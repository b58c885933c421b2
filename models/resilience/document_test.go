package resilience

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate go test . -run TestTheDocumentOfTheSettingsIsThatOfTheSchema -write

var write = flag.Bool("write", false, "write the document of the settings")

// document is the schema for people. The values of the three classes share a line.
func document() string {
	var b strings.Builder
	b.WriteString(`# Resilience settings

Under ` + "`settings.resilience`" + ` of the catalog file and of ` + "`/api/resilience`" + `. Generated from schema.go by ` + "`go generate ./models/resilience`" + `.
Three values are those of the classes oauth, apikey and local, which are written as in ` + "`providerBreaker.oauth.windowMs`" + `. CLASS in
a variable is OAUTH, API_KEY or LOCAL. A variable replaces a default; what is stored wins.
`)
	values, effective := Settings{}.Values(Settings{}), map[string]string{}
	for _, v := range values {
		effective[v.Path] = fmt.Sprint(v.Effective)
	}
	section := ""
	for _, v := range values {
		parts := strings.Split(v.Path, ".")
		if len(parts) == 3 && parts[1] != "oauth" {
			continue
		}
		if parts[0] != section {
			section = parts[0]
			fmt.Fprintf(&b, "\n## %s\n\n| Setting | Default | Bounds | Meaning |\n|---|---|---|---|\n", section)
		}
		standard, env := effective[v.Path], v.Env
		if len(parts) == 3 {
			standard = oneOrAll(standard, effective[parts[0]+".apikey."+parts[2]], effective[parts[0]+".local."+parts[2]])
			env = strings.Replace(env, "OAUTH", "CLASS", 1)
		}
		bounds := ""
		if v.Kind != KindSwitch {
			bounds = fmt.Sprintf("%d to %d", v.Min, v.Max)
		}
		unit := ""
		if v.Unit == Milliseconds || v.Unit == Seconds {
			unit = " " + v.Unit
		}
		meaning := v.Meaning
		if env != "" {
			meaning += " `" + env + "`"
		}
		fmt.Fprintf(&b, "| %s | %s%s | %s | %s |\n", parts[len(parts)-1], standard, unit, bounds, meaning)
	}
	return b.String()
}

func oneOrAll(oauth, apikey, local string) string {
	if oauth == apikey && apikey == local {
		return oauth
	}
	return oauth + " / " + apikey + " / " + local
}

func TestTheDocumentOfTheSettingsIsThatOfTheSchema(t *testing.T) {
	const file = "SETTINGS.md"
	if *write {
		require.NoError(t, os.WriteFile(file, []byte(document()), 0o644))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, document(), string(text), "run go generate ./models/resilience")
}
