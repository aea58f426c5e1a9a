package main

// The bodies of Docker's API as its daemon declares them (github.com/moby/moby api/types, 26.1 and 28.5 together), and
// how it reads them (api/server/httputils ReadJSON, runconfig ContainerDecoder). No tag has omitempty, so that a value
// that was read is shown whole.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"
)

// StrSlice is moby's api/types/strslice.
type StrSlice []string

func (e *StrSlice) UnmarshalJSON(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	p := make([]string, 0, 1)
	if err := json.Unmarshal(b, &p); err != nil {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		p = append(p, s)
	}
	*e = p
	return nil
}

type HealthConfig struct {
	Test                                          []string
	Interval, Timeout, StartPeriod, StartInterval time.Duration
	Retries                                       int
}

type Config struct {
	Hostname, Domainname, User              string
	AttachStdin, AttachStdout, AttachStderr bool
	ExposedPorts                            map[string]struct{}
	Tty, OpenStdin, StdinOnce               bool
	Env                                     []string
	Cmd                                     StrSlice
	Healthcheck                             *HealthConfig
	ArgsEscaped                             bool
	Image                                   string
	Volumes                                 map[string]struct{}
	WorkingDir                              string
	Entrypoint                              StrSlice
	NetworkDisabled                         bool
	MacAddress                              string
	OnBuild                                 []string
	Labels                                  map[string]string
	StopSignal                              string
	StopTimeout                             *int
	Shell                                   StrSlice
}

type RestartPolicy struct {
	Name              string
	MaximumRetryCount int
}

type WeightDevice struct {
	Path   string
	Weight uint16
}

type ThrottleDevice struct {
	Path string
	Rate uint64
}

type DeviceMapping struct {
	PathOnHost, PathInContainer, CgroupPermissions string
}

type DeviceRequest struct {
	Driver       string
	Count        int
	DeviceIDs    []string
	Capabilities [][]string
	Options      map[string]string
}

type Ulimit struct {
	Name       string
	Hard, Soft int64
}

type Resources struct {
	CPUShares            int64 `json:"CpuShares"`
	Memory               int64
	NanoCPUs             int64 `json:"NanoCpus"`
	CgroupParent         string
	BlkioWeight          uint16
	BlkioWeightDevice    []*WeightDevice
	BlkioDeviceReadBps   []*ThrottleDevice
	BlkioDeviceWriteBps  []*ThrottleDevice
	BlkioDeviceReadIOps  []*ThrottleDevice
	BlkioDeviceWriteIOps []*ThrottleDevice
	CPUPeriod            int64 `json:"CpuPeriod"`
	CPUQuota             int64 `json:"CpuQuota"`
	CPURealtimePeriod    int64 `json:"CpuRealtimePeriod"`
	CPURealtimeRuntime   int64 `json:"CpuRealtimeRuntime"`
	CpusetCpus           string
	CpusetMems           string
	Devices              []DeviceMapping
	DeviceCgroupRules    []string
	DeviceRequests       []DeviceRequest
	KernelMemory         int64
	KernelMemoryTCP      int64
	MemoryReservation    int64
	MemorySwap           int64
	MemorySwappiness     *int64
	OomKillDisable       *bool
	PidsLimit            *int64
	Ulimits              []*Ulimit
	CPUCount             int64 `json:"CpuCount"`
	CPUPercent           int64 `json:"CpuPercent"`
	IOMaximumIOps        uint64
	IOMaximumBandwidth   uint64
}

type Mount struct {
	Type, Source, Target string
	ReadOnly             bool
	Consistency          string
	BindOptions          *struct {
		Propagation                                                                  string
		NonRecursive, CreateMountpoint, ReadOnlyNonRecursive, ReadOnlyForceRecursive bool
	}
	VolumeOptions *struct {
		NoCopy       bool
		Labels       map[string]string
		Subpath      string
		DriverConfig *struct {
			Name    string
			Options map[string]string
		}
	}
	ImageOptions *struct{ Subpath string }
	TmpfsOptions *struct {
		SizeBytes int64
		Mode      os.FileMode
		Options   [][]string
	}
	ClusterOptions *struct{}
}

type PortBinding struct {
	HostIP   string `json:"HostIp"`
	HostPort string
}

type HostConfig struct {
	Binds           []string
	ContainerIDFile string
	LogConfig       struct {
		Type   string
		Config map[string]string
	}
	NetworkMode                 string
	PortBindings                map[string][]PortBinding
	RestartPolicy               RestartPolicy
	AutoRemove                  bool
	VolumeDriver                string
	VolumesFrom                 []string
	ConsoleSize                 [2]uint
	Annotations                 map[string]string
	CapAdd, CapDrop             StrSlice
	CgroupnsMode                string
	DNS                         []string `json:"Dns"`
	DNSOptions                  []string `json:"DnsOptions"`
	DNSSearch                   []string `json:"DnsSearch"`
	ExtraHosts, GroupAdd        []string
	IpcMode, Cgroup             string
	Links                       []string
	OomScoreAdj                 int
	PidMode                     string
	Privileged, PublishAllPorts bool
	ReadonlyRootfs              bool
	SecurityOpt                 []string
	StorageOpt, Tmpfs           map[string]string
	UTSMode, UsernsMode         string
	ShmSize                     int64
	Sysctls                     map[string]string
	Runtime, Isolation          string
	Resources
	Mounts                     []Mount
	MaskedPaths, ReadonlyPaths []string
	Init                       *bool
}

type EndpointSettings struct {
	IPAMConfig *struct {
		IPv4Address, IPv6Address string
		LinkLocalIPs             []string
	}
	Links, Aliases                 []string
	MacAddress                     string
	DriverOpts                     map[string]string
	GwPriority                     int
	NetworkID, EndpointID, Gateway string
	IPAddress                      string
	IPPrefixLen                    int
	IPv6Gateway, GlobalIPv6Address string
	GlobalIPv6PrefixLen            int
	DNSNames                       []string
}

type NetworkingConfig struct {
	EndpointsConfig map[string]*EndpointSettings
}

type ContainerConfigWrapper struct {
	*Config
	HostConfig       *HostConfig
	NetworkingConfig *NetworkingConfig
}

type UpdateConfig struct {
	Resources
	RestartPolicy RestartPolicy
}

type ExecOptions struct {
	User                                    string
	Privileged, Tty                         bool
	ConsoleSize                             *[2]uint
	AttachStdin, AttachStderr, AttachStdout bool
	Detach                                  bool
	DetachKeys                              string
	Env                                     []string
	WorkingDir                              string
	Cmd                                     []string
}

type ExecStartOptions struct {
	Detach, Tty bool
	ConsoleSize *[2]uint
}

type VolumeCreate struct {
	ClusterVolumeSpec  *struct{ Group string }
	Driver             string
	DriverOpts, Labels map[string]string
	Name               string
}

type NetworkCreate struct {
	Driver, Scope          string
	EnableIPv4, EnableIPv6 *bool
	IPAM                   *struct {
		Driver  string
		Options map[string]string
		Config  []struct {
			Subnet, IPRange, Gateway string
			AuxAddress               map[string]string `json:"AuxiliaryAddresses"`
		}
	}
	Internal, Attachable, Ingress, ConfigOnly bool
	ConfigFrom                                *struct{ Network string }
	Options, Labels                           map[string]string
	Name                                      string
	CheckDuplicate                            *bool
}

type NetworkConnect struct {
	Container      string
	EndpointConfig *EndpointSettings
}

type NetworkDisconnect struct {
	Container string
	Force     bool
}

type AuthConfig struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	Email         string `json:"email"`
	ServerAddress string `json:"serveraddress"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// By the route's id in the gate.
var bodies = map[string]func() any{
	"container.create":   func() any { return &ContainerConfigWrapper{} },
	"container.update":   func() any { return &UpdateConfig{} },
	"exec.create":        func() any { return &ExecOptions{} },
	"exec.start":         func() any { return &ExecStartOptions{} },
	"image.commit":       func() any { return &ContainerConfigWrapper{} },
	"volume.create":      func() any { return &VolumeCreate{} },
	"network.create":     func() any { return &NetworkCreate{} },
	"network.connect":    func() any { return &NetworkConnect{} },
	"network.disconnect": func() any { return &NetworkDisconnect{} },
	"system.auth":        func() any { return &AuthConfig{} },
}

// readBody is ReadJSON: one value, and nothing behind it that More() sees.
func readBody(route string, body []byte) (any, error) {
	value := bodies[route]()
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(value); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("got EOF while reading request body")
		}
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("unexpected content after JSON")
	}
	return value, nil
}
