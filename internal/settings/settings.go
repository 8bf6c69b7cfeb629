// Package settings decides what the box of "carrel run" is like: it reads what people wrote,
// fills in what protects them, and says where each decision came from.
//
// # The story
//
// There are layers, weakest first: the built-in protections; the profiles that are named; the user's file
// (~/.config/carrel/run.yaml); the project's file (.carrel.yaml, found upwards from the working directory); a file
// given by --settings (ours, or srt's JSON as it is); the flags. [Resolve] merges them into a [Box], in which every
// path is absolute and every decision has its source. [Box.Explain] puts it into words.
//
// # Rules of merging
//
// Of paths the most specific rule decides, whatever its layer; of two for the same path that of the stronger layer; in one
// layer deny. Lists of destinations add up, and a denied destination is denied in every layer. Scalars: the strongest layer
// that says something. The built-in protections of what is written (Protected) are only lifted by naming the very path or name.
//
// # Threat
//
// The project's file comes with the project: whoever wrote the repository wrote it. It may close; what it would open beyond the built-in
// box (more to read or write, network, environment, sockets, fewer limits, a weaker tier) counts only after the person has trusted that very content
// ("carrel run --trust", kept as a hash by path in the user's state directory), and is otherwise left out with
// a note. The file is protected in the box. Globs, links and names come from hostile directories.
package settings

import (
	"time"

	"github.com/carrel-dev/carrel"
)

// Settings is one layer, as written. Unknown keys are errors that name a near match. A nil list says
// nothing; an empty one says "none", which for destinations is not the same as nothing said.
type Settings struct {
	Profiles []string `json:"profiles,omitempty"`
	Tier     string   `json:"tier,omitempty"` // ns, gvisor or sim
	// Read and Write are paths: absolute, "~/…", or relative to the file's directory (for flags the working directory), with globs
	// ("*", "**", "?", "[…]"); a relative pattern without a slash, like ".env*", is a name anywhere below the working directory.
	Read  PathRules `json:"read,omitzero"`
	Write PathRules `json:"write,omitzero"`
	// Network: Allow and Deny are destinations as of the flags of "carrel create": example.com, *.example.com, addresses, CIDRs,
	// tcp://host:port. Policy is a whole policy, or the name of a file or preset.
	Network  NetworkRules `json:"network,omitzero"`
	Env      EnvRules     `json:"env,omitzero"`
	Limits   Limits       `json:"limits,omitzero"`
	Overlay  *bool        `json:"overlay,omitempty"`
	Terminal string       `json:"terminal,omitempty"` // "own" (default) or "none"
	// Walls "light" asks for Landlock and the filter alone where there are no namespaces; "full" is the default.
	Walls string `json:"walls,omitempty"`

	srt *srtOnly // nil for our own
}

// PathRules open and close.
type PathRules struct {
	Allow   []string `json:"allow,omitempty"`
	Deny    []string `json:"deny,omitempty"`
	Default string   `json:"default,omitempty"` // "allow" or "deny" of what nothing names; read: allow, write: deny
	// Protect adds names that are never written although their directory is, Unprotect lifts built-in ones. Of Write alone.
	Protect   []string `json:"protect,omitempty"`
	Unprotect []string `json:"unprotect,omitempty"`

	// Replaced and Made are of the built-in profiles' Write alone. Replaced are files that a program saves by writing beside
	// them and renaming. Made are directories that have to be there for a program to keep its state.
	Replaced []string `json:"-"`
	Made     []Made   `json:"-"`
}

// Made is a directory that is made before the command starts if it is missing.
type Made struct {
	Path    string
	Program string // made only if this program is in PATH; "" is always
}

// NetworkRules are what may leave.
type NetworkRules struct {
	Allow, Deny []string       `json:"-"`
	Policy      *carrel.Policy `json:"-"`
	PolicyRef   string         `json:"-"` // file or presets
	Sockets     []string       `json:"-"` // Unix sockets that may be connected to; "*" is all
	Bind        *bool          `json:"-"` // may listen on ports of the box's own network; default yes
	Publish     []string       `json:"-"` // [ADDRESS:]PORT[:INSIDE]
	Host        bool           `json:"-"` // no network wall at all
}

// EnvRules are about variables. Patterns may have "*".
type EnvRules struct {
	Pass  []string          `json:"pass,omitempty"`  // kept although the built-in list strips them
	Strip []string          `json:"strip,omitempty"` // not kept
	Set   map[string]string `json:"set,omitempty"`
	Clear bool              `json:"clear,omitempty"` // keep only what Pass names, and PATH, HOME, TERM, LANG and the like
}

// Limits bound the command. Nil says nothing.
type Limits struct {
	CPUs      *float64       `json:"cpus,omitempty"`
	MemoryMB  *int           `json:"memoryMB,omitempty"`
	Pids      *int           `json:"pids,omitempty"`
	FileMB    *int           `json:"fileMB,omitempty"`
	TmpMB     *int           `json:"tmpMB,omitempty"`
	OpenFiles *int           `json:"openFiles,omitempty"`
	Timeout   *time.Duration `json:"-"`
}

// Source says where a decision came from: "built-in", "profile claude-code", "~/.config/carrel/run.yaml", ".carrel.yaml", "--write".
type Source string

// Layer is Settings with its source.
type Layer struct {
	Source Source
	Dir    string // what relative paths are relative to
	Settings
}

// Request is what Resolve starts from.
type Request struct {
	Dir       string   // working directory; links are resolved
	Home      string   // of the user
	Env       []string // of the caller
	UID       int
	Flags     Settings          // the strongest layer
	File      string            // --settings; "" for none
	NoFiles   bool              // neither the user's file nor the project's
	Trust     bool              // trust the project's file as it is now, from now on
	StateDir  string            // where trust is kept; "" is the user's default
	ConfigDir string            // where run.yaml is; "" is the user's default
	OS        string            // "linux" if ""; "darwin" for Seatbelt
	Exists    func(string) bool // nil is the real filesystem; for tests of other systems' lists
	// Elsewhere is how long secrets that are known by their names (".env") may be looked for outside of what is written and
	// what is opened by name. What that is too short for is closed. 0 leaves it alone: nothing of this machine is seen there.
	Elsewhere time.Duration
}

// Access is what a box may do with a path.
type Access string

// The accesses.
const (
	Denied   Access = "denied" // neither read nor written; it looks as if it could not be opened
	Readable Access = "read"
	Writable Access = "write" // and read
)

// PathRule is one decided path. Of all that are prefixes of a path the longest decides.
type PathRule struct {
	Path   string // absolute, links resolved in all but the last element
	Access Access
	Rule   string // "built-in: ssh keys"
	Source Source
	Allow  string // how a person would open it: "--read ~/.ssh"
	// Blank asks for an empty file instead of a refusal: programs that look into it give up on
	// "permission denied".
	Blank bool
}

// Protected is a name that is not written: neither created, changed, removed nor replaced.
type Protected struct {
	Pattern string // relative: ".mcp.json", ".git/hooks", ".vscode"; or absolute. "*" is anything in one element
	Dir     string // where a relative one holds; "" is every writable directory
	Deep    bool   // in every directory below the writable ones, not only at their top
	Rule    string
	Source  Source
	Allow   string // how a person would lift it: "--unprotect .mcp.json"
	// Except are absolute paths that the pattern matches and that somebody opened by naming them, with all below.
	Except []string

	layer int
}

// Replaced is a file that a program saves by writing NAME.tmp or the like beside it and renaming that. The directory
// that it lies in stays closed for all other names.
type Replaced struct {
	Path   string // absolute, links resolved; it need not exist
	Rule   string
	Source Source
}

// EnvVar is one variable's fate.
type EnvVar struct {
	Name   string
	Kept   bool
	Value  string // of those that are kept
	Rule   string
	Source Source
}

// Box is what was decided.
type Box struct {
	Dir, Home string
	Tier      carrel.Tier
	Light     bool
	// ReadDefault and WriteDefault are of what no path rule names. Paths exist (but the protected ones).
	ReadDefault, WriteDefault Access
	Paths                     []PathRule // by path
	Protected                 []Protected
	// Repositories are git's directories, and .git files, that were found where the search for protected names went.
	Repositories []string
	// Private are directories that are the box's own, empty and writable: /tmp. Where Paths names one,
	// or something in one, that is this machine's.
	Private []string
	covered map[uint64][]covered // by inode
	// Replaced are files that may be written, and replaced by what is written beside them: see [Replaced.Beside].
	Replaced []Replaced
	// Missing are directories that a profile needs and that are not there. Whoever makes them resolves again.
	Missing []string
	Env     []EnvVar
	// Network: Closed lets nothing out and needs no wire; Host is no wall.
	Closed, Host                             bool
	Policy                                   carrel.Policy
	Sockets                                  []string // absolute
	Bind                                     bool
	Publish                                  []string
	CPUs                                     float64
	MemoryMB, Pids, FileMB, TmpMB, OpenFiles int
	Timeout                                  time.Duration
	Overlay                                  bool
	NoTerminal                               bool // terminal: none
	Profiles                                 []string
	Layers                                   []Source // that were read, weakest first
	Notes                                    []string // for --explain, and those with "!" in front for stderr always: what was left out, matched nothing, has no meaning here
}

// Parse reads one file's text: ours as YAML or JSON. name is for errors. Error: Invalid, with Field naming the file and key.
func Parse(name string, data []byte) (Settings, error) {
	s, _, err := parse(name, data)
	return s, err
}

// Profile is a built-in set of settings for a tool.
type Profile struct {
	Name, Description string
	Settings
}
