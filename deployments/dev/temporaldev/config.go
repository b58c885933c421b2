package temporaldev

import (
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
)

const (
	clusterName = "active"
	storeName   = "main"
	// historyShards cannot change once the database exists.
	historyShards = 1
)

func serverConfig(p ports, database *config.SQL) *config.Config {
	conf := &config.Config{
		Persistence: config.Persistence{
			NumHistoryShards: historyShards,
			DefaultStore:     storeName,
			VisibilityStore:  storeName,
			DataStores:       map[string]config.DataStore{storeName: {SQL: database}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled: true, InitialFailoverVersion: 1,
				RPCAddress: p.frontendAddress(), HTTPAddress: p.address(p.frontendHTTP),
			}},
		},
		Services: map[string]config.Service{},
	}
	conf.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: p.ip}
	conf.DCRedirectionPolicy.Policy = "noop"
	conf.Archival.History.State, conf.Archival.Visibility.State = "disabled", "disabled"
	conf.NamespaceDefaults.Archival.History.State = "disabled"
	conf.NamespaceDefaults.Archival.Visibility.State = "disabled"
	conf.PublicClient.HostPort = p.frontendAddress()

	service := func(name primitives.ServiceName, port int) {
		s := config.Service{}
		s.RPC.BindOnIP, s.RPC.GRPCPort = p.ip, port
		if name == primitives.FrontendService {
			s.RPC.HTTPPort = p.frontendHTTP
		}
		conf.Services[string(name)] = s
	}
	service(primitives.FrontendService, p.frontend)
	service(primitives.HistoryService, p.history)
	service(primitives.MatchingService, p.matching)
	service(primitives.WorkerService, p.inner)
	return conf
}

// staticHosts names this process as the only member of every service.
func staticHosts(conf *config.Config) map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, s := range conf.Services {
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(net.JoinHostPort(s.RPC.BindOnIP, strconv.Itoa(s.RPC.GRPCPort)))
	}
	return hosts
}

// tunedDynamicConfig corrects the defaults that hurt a small server. The same values for a
// cluster stand in deployments/temporal/dynamicconfig.
func tunedDynamicConfig(overrides map[string]any) dynamicconfig.StaticClient {
	tuned := dynamicconfig.StaticClient{
		// The default of 20 queue polls a second adds 50 ms to every asynchronous step of a busy shard.
		dynamicconfig.TransferProcessorMaxPollRPS.Key():   2000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():      2000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): 2000,
		// The default of 1 s makes every timer under a second last a second.
		dynamicconfig.TimerProcessorMaxTimeShift.Key(): 10 * time.Millisecond,
		// A new search attribute is usable at once.
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		// Lists are polled by the Web UI and by tests.
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
		// Half a million cached histories fit a server of thousands; this one shares a laptop.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key(): 8096,
	}
	for key, value := range overrides {
		tuned[dynamicconfig.MakeKey(key)] = value
	}
	return tuned
}
