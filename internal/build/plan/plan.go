// Package plan is the recipe of a template: stages that begin from an image, and the steps of
// each. Two things make plans: the steps that an E2B SDK sends (package build), and a Dockerfile
// (package build/dockerfile). Package build carries a plan out, each step in a sandbox.
//
// A plan is complete: its words are expanded, so that nothing in it depends on the order in which
// its stages run. A step that is equal, byte for byte, on an equal parent gives the same files. Its
// cache key is made of both.
package plan

import "time"

// Plan is the recipe of one template.
type Plan struct {
	// Stages are in the order of the file. A stage refers to earlier ones only.
	Stages []Stage
	// Result is the index of the stage that becomes the template. Stages that it does not need
	// are not made.
	Result int
}

// Stage is a base and what is done to it.
type Stage struct {
	Name  string // lower case; "" for none
	Line  int    // of its FROM, from 1; 0 where there is no file
	From  Source
	Steps []Step
	// Config is the configuration of the base, from which the first step starts.
	Config Config
}

// Source says where files come from. Exactly one of its fields is set, but for Registry, which
// goes with Image. Stage counts from 1, so that the zero Source is none.
type Source struct {
	Scratch  bool
	Image    string // reference of an image in a registry
	Template string // name or ID of a template
	Stage    int    // index in Plan.Stages, plus one
	Registry *Credentials
}

// Credentials open a registry. No layer, log or record holds them.
type Credentials struct {
	Username string
	Password string
}

// DefaultPath is the PATH of a base that sets none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Config is how processes start: the part of an image's configuration that steps change.
type Config struct {
	Env        []Variable
	Workdir    string // absolute; "" is the home of the user
	User       string // name or number, with an optional ":group"; "" is root
	Shell      []string
	Entrypoint []string
	Cmd        []string
	Start      string // command that runs from the template's start on; "" for none
	Ready      *Ready
	Labels     []Variable
	Expose     []string // "8080/tcp"
	StopSignal string
	Volumes    []string
	// OnBuild are instructions of a Dockerfile that a stage which begins from this carries out first.
	OnBuild []string
}

// Variable is a name and its value.
type Variable struct{ Name, Value string }

// Ready is the check that says when a start command is up.
type Ready struct {
	Command  string // run by a shell; exit code 0 is ready
	Interval time.Duration
	Timeout  time.Duration // of one try
	Grace    time.Duration // failures in it do not count
	Retries  int
}

// Step is one line of a stage.
type Step struct {
	Line  int    // from 1; 0 where there is no file
	Text  string // as it was written, for logs and errors; it holds no secret
	Force bool   // do it even if the cache has its result
	Op    Op
	// Config is the configuration after this step. A step that only changes it has a nil Op.
	Config Config
}

// Op is the part of a step that changes files: a *Run, a *Copy or a *Workdir.
type Op interface{ op() }

// Run runs a command.
type Run struct {
	// Args is the whole argument list, the shell of the stage included.
	Args []string
	// Stdin is given to the command, for a heredoc; "" is none.
	Stdin  string
	Env    []Variable // beside the configuration's: arguments of the build
	Mounts []Mount
	// Offline cuts the network off (RUN --network=none).
	Offline bool
}

// MountKind says what RUN --mount mounts.
type MountKind string

// The kinds of mounts.
const (
	MountCache  MountKind = "cache"  // a directory that lasts from build to build
	MountSecret MountKind = "secret" // a file that only this command sees
	MountBind   MountKind = "bind"   // files of the context or another stage, gone after the command
	MountTmpfs  MountKind = "tmpfs"
)

// Mount is something that only one command sees.
type Mount struct {
	Kind     MountKind
	ID       string // of a cache or a secret
	Target   string // absolute path; "" for a secret that is only a variable
	Env      string // of a secret: the variable that holds it
	From     Source // of a bind; the zero Source is the build's context
	Path     string // in From
	Mode     uint32 // permission bits; 0 is the kind's default
	UID, GID uint32
	ReadOnly bool
	Required bool  // a missing secret is an error
	Size     int64 // bytes, of a tmpfs; 0 is the default
	Sharing  CacheSharing
}

// CacheSharing says who may use a cache at the same time.
type CacheSharing string

// How caches are shared.
const (
	CacheShared  CacheSharing = ""        // by any number of commands
	CacheLocked  CacheSharing = "locked"  // by one command; the others wait
	CachePrivate CacheSharing = "private" // by one command; others get a cache of their own
)

// Copy brings files in.
type Copy struct {
	From Source // the zero Source is the build's context
	// Upload is the hash of an uploaded archive that stands for the context, as E2B's SDKs send
	// it; "" for a Dockerfile's context.
	Upload string
	// Paths are in From, with the wildcards of a Dockerfile, as they were written.
	Paths []string
	// URLs are fetched through the build's policy (ADD).
	URLs []string
	// Inline are files whose content is in the plan itself (heredocs).
	Inline []File
	Target string // absolute path; one that ends in "/" is a directory
	Owner  string // "user:group", names or numbers of the stage; "" is 0:0
	Mode   string // octal or symbolic; "" keeps each file's
	// Unpack unpacks local archives (ADD), UnpackURLs fetched ones (ADD --unpack).
	Unpack     bool
	UnpackURLs bool
	Parents    bool
	Exclude    []string
	Link       bool
	// Checksum is that of the only URL, "sha256:…"; "" is not checked.
	Checksum string
}

// File is a small file inside a plan.
type File struct {
	Name    string
	Content string
}

// Workdir makes a directory, unless it is there.
type Workdir struct {
	Path  string // absolute
	Owner string // "" is root
}

func (*Run) op()     {}
func (*Copy) op()    {}
func (*Workdir) op() {}
