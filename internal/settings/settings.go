// Package settings decides about the box of "carrel run". It reads people's settings, adds the
// built-in protections, and says where each decision comes from.
//
// # The story
//
// There are layers, weakest first: the built-in protections; the profiles that are named; the
// user's file (~/.config/carrel/run.yaml); the project's file (.carrel.yaml, searched upwards from
// the working directory); a file given by --settings (ours, or srt's JSON as it is); the flags.
// [Resolve] merges them into a [Box], in which every path is absolute and every decision has its
// source. [Box.Explain] describes it in words.
//
// # Rules of merging
//
// For paths, the most specific rule decides, whatever its layer. Of two rules for the same path,
// the one of the stronger layer decides; within one layer, deny decides. Lists of destinations add
// up, and a destination that one layer denies is denied. For scalars, the strongest layer that sets
// one decides. The built-in protections of written files (Protected) are lifted only by naming the
// exact path or name.
//
// # Threat
//
// The project's file comes with the project, so the author of the repository wrote it. It may
// close. It may open something beyond the built-in box (more to read or write, network,
// environment, sockets, fewer limits, a weaker tier) only after the person has trusted its exact
// content ("carrel run --trust", kept as a hash by path in the user's state directory). Otherwise
// those entries are left out with a note. The file is protected in the box. Globs, links and names
// come from hostile directories.
package settings

import (
	"time"

	"github.com/carrel-dev/carrel"
)

// Settings is one layer, as written. An unknown key is an error that names a similar key. A nil
// list sets nothing. An empty list means "none"; for destinations that differs from nil.
type Settings struct {
	Profiles []string `json:"profiles,omitempty"`
	Tier     string   `json:"tier,omitempty"` // ns, gvisor or sim
	// Read and Write are paths: absolute, "~/…", or relative to the file's directory (for flags the
	// working directory), with globs ("*", "**", "?", "[…]"). A relative pattern without a slash,
	// like ".env*", is a name anywhere below the working directory.
	Read  PathRules `json:"read,omitzero"`
	Write PathRules `json:"write,omitzero"`
	// In Network, Allow and Deny are destinations as in the flags of "carrel create": example.com,
	// *.example.com, addresses, CIDRs, tcp://host:port. Policy is a whole policy, or the name of a
	// file or preset.
	Network  NetworkRules `json:"network,omitzero"`
	Env      EnvRules     `json:"env,omitzero"`
	Limits   Limits       `json:"limits,omitzero"`
	Overlay  *bool        `json:"overlay,omitempty"`
	Terminal string       `json:"terminal,omitempty"` // "own" (default) or "none"
	// Walls "light" uses only Landlock and the seccomp filter where there are no namespaces; "full"
	// is the default.
	Walls string `json:"walls,omitempty"`

	srt *srtOnly // nil for our own
}

// PathRules open and close.
type PathRules struct {
	Allow   []string `json:"allow,omitempty"`
	Deny    []string `json:"deny,omitempty"`
	Default string   `json:"default,omitempty"` // "allow" or "deny" for all other paths; read: allow, write: deny
	// Protect adds names that are never written even if their directory is writable. Unprotect
	// lifts built-in ones. Both are for Write only.
	Protect   []string `json:"protect,omitempty"`
	Unprotect []string `json:"unprotect,omitempty"`

	// Only the Write of a built-in profile has Replaced and Made. Replaced are files that a program
	// saves by writing a new file beside them and renaming it. Made are directories that must
	// exist, so that a program can keep its state.
	Replaced []string `json:"-"`
	Made     []Made   `json:"-"`
}

// Made is a directory that is made before the command starts if it is missing.
type Made struct {
	Path    string
	Program string // made only if this program is in PATH; "" is always
}

// NetworkRules are the rules for outgoing traffic.
type NetworkRules struct {
	Allow, Deny []string       `json:"-"`
	Policy      *carrel.Policy `json:"-"`
	PolicyRef   string         `json:"-"` // file or presets
	Sockets     []string       `json:"-"` // Unix sockets that programs may connect to; "*" is all
	Bind        *bool          `json:"-"` // may listen in the box's own network; default yes
	Publish     []string       `json:"-"` // [ADDRESS:]PORT[:INSIDE]
	Host        bool           `json:"-"` // no network wall at all
}

// EnvRules are rules for variables. Patterns may have "*".
type EnvRules struct {
	Pass  []string          `json:"pass,omitempty"`  // kept even if the built-in list strips them
	Strip []string          `json:"strip,omitempty"` // not kept
	Set   map[string]string `json:"set,omitempty"`
	Clear bool              `json:"clear,omitempty"` // keep only what Pass names, and PATH, HOME, TERM, LANG and the like
}

// Limits bound the command. Nil sets nothing.
type Limits struct {
	CPUs      *float64       `json:"cpus,omitempty"`
	MemoryMB  *int           `json:"memoryMB,omitempty"`
	Pids      *int           `json:"pids,omitempty"`
	FileMB    *int           `json:"fileMB,omitempty"`
	TmpMB     *int           `json:"tmpMB,omitempty"`
	OpenFiles *int           `json:"openFiles,omitempty"`
	Timeout   *time.Duration `json:"-"`
}

// Source says where a decision comes from: "built-in", "profile claude-code",
// "~/.config/carrel/run.yaml", ".carrel.yaml", "--write".
type Source string

// Layer is Settings with its source.
type Layer struct {
	Source Source
	Dir    string // base of relative paths
	Settings
}

// Request is the input of Resolve.
type Request struct {
	Dir       string   // working directory; links are resolved
	Home      string   // of the user
	Env       []string // of the caller
	UID       int
	Flags     Settings          // the strongest layer
	File      string            // --settings; "" for none
	NoFiles   bool              // ignore the user's file and the project's
	Trust     bool              // trust the project's file with its present content
	StateDir  string            // directory of trusted hashes; "" is the user's default
	ConfigDir string            // directory of run.yaml; "" is the user's default
	OS        string            // "" is "linux"; "darwin" is for Seatbelt
	Exists    func(string) bool // nil is the real filesystem; for tests of other systems
	// Elsewhere bounds the search for secrets with known names (".env") outside of the written
	// directories and those opened by name. Directories that are not reached in this time are
	// closed. 0 means no such search: nothing of this machine is visible there.
	Elsewhere time.Duration
}

// Access is the permission of a box for a path.
type Access string

// The accesses.
const (
	Denied   Access = "denied" // neither read nor written; opening it fails
	Readable Access = "read"
	Writable Access = "write" // and read
)

// PathRule is one decided path. The rule with the longest prefix of a path decides.
type PathRule struct {
	Path   string // absolute; links resolved except in the last element
	Access Access
	Rule   string // "built-in: ssh keys"
	Source Source
	Allow  string // the flag that would open it: "--read ~/.ssh"
	// Blank shows an empty file instead of a refusal. Programs that read this file give up on
	// "permission denied".
	Blank bool
}

// Protected is a name that is not written: neither created, changed, removed nor replaced.
type Protected struct {
	Pattern string // relative: ".mcp.json", ".git/hooks", ".vscode"; or absolute. "*" is anything in one element
	Dir     string // where a relative pattern holds; "" is every writable directory
	Deep    bool   // in all directories below writable ones, not only at the top
	Rule    string
	Source  Source
	Allow   string // the flag that would lift it: "--unprotect .mcp.json"
	// Except are absolute paths that match the pattern and are open all the same, with everything
	// below them, because a layer names them.
	Except []string

	layer int
}

// Replaced is a file that a program saves by writing NAME.tmp or the like beside it and renaming
// that. The directory that it lies in stays closed for all other names.
type Replaced struct {
	Path   string // absolute, links resolved; it need not exist
	Rule   string
	Source Source
}

// EnvVar is the decision about one variable.
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
	// ReadDefault and WriteDefault are for paths without a path rule. Paths exist (except protected
	// ones).
	ReadDefault, WriteDefault Access
	Paths                     []PathRule // by path
	Protected                 []Protected
	// Repositories are git's directories, and .git files, that the search for protected names
	// found.
	Repositories []string
	// Private are directories of the box's own, empty and writable: /tmp. If a rule of Paths names
	// one, or a path inside one, that path shows this machine's files.
	Private []string
	covered map[uint64][]covered // by inode
	// Replaced are files that may be written, and replaced by what is written beside them: see
	// [Replaced.Beside].
	Replaced []Replaced
	// Missing are directories that a profile needs and that are not there. Whoever makes them
	// resolves again.
	Missing []string
	Env     []EnvVar
	// Network: Closed lets nothing out and needs no wire; Host means the host's network without a
	// wall.
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
	Notes                                    []string // for --explain; those with "!" in front always go to stderr
}

// Parse reads the text of one file: ours, as YAML or JSON. name is for errors. Error: Invalid, with
// Field naming the file and key.
func Parse(name string, data []byte) (Settings, error) {
	s, _, err := parse(name, data)
	return s, err
}

// Profile is a built-in set of settings for a tool.
type Profile struct {
	Name, Description string
	Settings
}
