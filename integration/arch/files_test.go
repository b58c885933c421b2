package arch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// No container engine is needed for this: it proves that the file is YAML, that its anchors
// resolve, and that everybody who is waited for exists.
func TestTheComposeFileHoldsTogether(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image       string
			Command     any
			Environment map[string]string
			Volumes     []string
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		}
	}
	readYAML(t, "compose.yaml", &file)

	for _, name := range []string{"postgres", "temporal-schema", "temporal", "temporal-namespace", "temporal-ui", "migrate", "worker", "gateway-1", "gateway-2"} {
		require.Contains(t, file.Services, name)
	}
	for name, service := range file.Services {
		require.NotEmpty(t, service.Image, name)
		for other, wait := range service.DependsOn {
			require.Contains(t, file.Services, other, name)
			require.Contains(t, []string{"service_healthy", "service_completed_successfully"}, wait.Condition, name)
		}
	}
	for _, name := range []string{"gateway-1", "gateway-2"} {
		for _, variable := range []string{"OMNIROUTE_DATABASE_URL", "OMNIROUTE_TEMPORAL_ADDRESS", "OMNIROUTE_ENCRYPTION_KEYS", "OMNIROUTE_ADMIN_TOKEN"} {
			require.NotEmpty(t, file.Services[name].Environment[variable], "%s of %s", variable, name)
		}
	}
	worker := file.Services["worker"].Environment
	require.Equal(t, file.Services["gateway-1"].Environment["OMNIROUTE_ENCRYPTION_KEYS"], worker["OMNIROUTE_ENCRYPTION_KEYS"], "it refreshes tokens")
	require.NotContains(t, worker, "OMNIROUTE_ADMIN_TOKEN")
}

func TestTheServersDynamicConfigIsYAML(t *testing.T) {
	var values map[string][]struct{ Value any }
	readYAML(t, "deployments/temporal/dynamicconfig/omniroute.yaml", &values)
	require.Equal(t, "10ms", values["history.timerProcessorMaxTimeShift"][0].Value)
	require.EqualValues(t, 2000, values["history.transferProcessorMaxPollRPS"][0].Value)
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}
