package carrel

import (
	"context"
	"io"
	"iter"
	"time"
)

// Builder makes templates step by step. It is an optional part of a [Service]; see [Extras].
//
// StartBuild checks a [BuildSpec] and puts the build into a queue. From then on the build goes on
// by itself: waiting, building, and at last ready, error or cancelled. Its record and its log
// outlive the daemon. A build that a dying daemon leaves behind is failed by the next one, which
// says so.
type Builder interface {
	// StartBuild begins a build and returns as soon as it is in the queue. It reads spec.Context to
	// its end before it returns. Errors: Invalid (the field, or the step and its line), NotFound (a
	// base), Exhausted (too many builds of this caller, or a context that is too large).
	StartBuild(ctx context.Context, spec BuildSpec) (Build, error)
	// GetBuild returns one build. Error: NotFound.
	GetBuild(ctx context.Context, id string) (Build, error)
	// ListBuilds returns the caller's builds, newest first.
	ListBuilds(ctx context.Context, opts BuildListOptions) ([]Build, error)
	// BuildLogs streams a build's log. With Follow it ends after the build's end.
	BuildLogs(ctx context.Context, id string, opts BuildLogOptions) iter.Seq2[BuildLog, error]
	// CancelBuild ends a build. It returns when nothing of the build runs any more. For a build
	// that has ended it does nothing. Error: NotFound.
	CancelBuild(ctx context.Context, id string) (Build, error)
	// TagTemplate makes tags of a template point to the build that target has now. target is a
	// template's name or ID, with an optional tag: name, name:tag. Errors: NotFound, Invalid.
	TagTemplate(ctx context.Context, target string, tags []string) (TemplateTag, error)
	// UntagTemplate removes tags of a template. Errors: NotFound, Invalid (the tag default).
	UntagTemplate(ctx context.Context, nameOrID string, tags []string) error
	// TemplateTags lists the tags of a template. Error: NotFound.
	TemplateTags(ctx context.Context, nameOrID string) ([]TemplateTag, error)
}

// BuildState is where a build is in its life.
type BuildState string

// The states of builds. The last three are final.
const (
	BuildWaiting   BuildState = "waiting"  // in the queue, or created and not yet started
	BuildBuilding  BuildState = "building" // its steps run
	BuildReady     BuildState = "ready"    // the template is there
	BuildError     BuildState = "error"    // Reason says why
	BuildCancelled BuildState = "cancelled"
)

// Final reports whether a build in this state has ended.
func (s BuildState) Final() bool {
	return s == BuildReady || s == BuildError || s == BuildCancelled
}

// Build is the making of one template.
type Build struct {
	ID string `json:"id"` // a UUID
	// TemplateID is the template's lasting ID. All builds of a name have the same one.
	TemplateID string   `json:"templateID"`
	Name       string   `json:"name"`
	Tags       []string `json:"tags,omitempty"`
	Project    string   `json:"project,omitempty"`
	// Image is the ID of the image that the build made; "" before the build is ready.
	Image    string       `json:"image,omitempty"`
	State    BuildState   `json:"state"`
	Reason   *BuildReason `json:"reason,omitempty"` // of BuildError
	Created  time.Time    `json:"created"`
	Started  time.Time    `json:"started,omitzero"`
	Ended    time.Time    `json:"ended,omitzero"`
	CPUs     float64      `json:"cpus,omitempty"`
	MemoryMB int          `json:"memoryMB,omitempty"`
	DiskMB   int          `json:"diskMB,omitempty"`
	Size     int64        `json:"size,omitempty"` // of the image on disk
	Steps    []BuildStep  `json:"steps,omitempty"`
}

// BuildReason says why a build failed.
type BuildReason struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Step is the number of the step in the order of the file, from 1; or "base" or "finalize".
	Step string `json:"step,omitempty"`
	Line int    `json:"line,omitempty"` // of the Dockerfile, from 1
}

// BuildStep is one step of a build.
type BuildStep struct {
	Text   string        `json:"text"`
	Stage  string        `json:"stage,omitempty"`
	Line   int           `json:"line,omitempty"` // of the Dockerfile, from 1
	Key    string        `json:"key,omitempty"`  // names the result in the cache
	Cached bool          `json:"cached,omitempty"`
	State  BuildState    `json:"state"` // never cancelled
	Took   time.Duration `json:"took,omitempty"`
}

// BuildSpec says what to build. It has either a Dockerfile or a base (FromImage, FromTemplate) and
// Instructions.
type BuildSpec struct {
	// ID is that of a build which waits for its start; "" makes a new build.
	ID   string   `json:"id,omitempty"`
	Name string   `json:"name,omitempty"`
	Tags []string `json:"tags,omitempty"` // none means "default"
	// CPUs, MemoryMB and DiskMB are the size of the build's sandboxes and of the template's; 0 is
	// the default. MinFreeDiskMB is the least free space that the finished template has.
	CPUs          float64 `json:"cpus,omitempty"`
	MemoryMB      int     `json:"memoryMB,omitempty"`
	DiskMB        int     `json:"diskMB,omitempty"`
	MinFreeDiskMB int     `json:"minFreeDiskMB,omitempty"`
	Public        bool    `json:"public,omitempty"` // for an administrator only
	Tier          Tier    `json:"tier,omitempty"`   // of the build's sandboxes; "" is the best one
	// Network is the policy of the build's sandboxes; nil is the service's default.
	Network *Network `json:"network,omitempty"`
	// NoCache runs all steps, as if the cache were empty.
	NoCache bool `json:"noCache,omitempty"`
	// Timeout bounds the build, and StepTimeout each of its steps; 0 is the service's bound.
	Timeout     time.Duration `json:"timeout,omitempty"`
	StepTimeout time.Duration `json:"stepTimeout,omitempty"`

	// Dockerfile is the text of a Dockerfile. Its context is Context.
	Dockerfile string            `json:"dockerfile,omitempty"`
	Args       map[string]string `json:"args,omitempty"`   // values of ARG
	Target     string            `json:"target,omitempty"` // the stage to build; "" is the last
	// Secrets are the values for RUN --mount=type=secret, by ID. Nothing keeps them.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Context is a tar stream, plain or compressed: the files that COPY sees. nil is none.
	Context io.Reader `json:"-"`

	FromImage    string             `json:"fromImage,omitempty"`
	FromTemplate string             `json:"fromTemplate,omitempty"`
	Instructions []BuildInstruction `json:"instructions,omitempty"`
	// Start is a command that runs from the template's start on. Ready is a command that succeeds
	// when it is up. They replace those of a Dockerfile.
	Start string `json:"start,omitempty"`
	Ready string `json:"ready,omitempty"`

	// Registries are the credentials for registries, by host ("registry.example.com"). "" is the
	// host of FromImage. No record, layer or log holds them.
	Registries map[string]RegistryCredentials `json:"registries,omitempty"`
}

// BuildInstruction is one instruction in the form of E2B's SDKs.
type BuildInstruction struct {
	Type string   `json:"type"` // COPY, RUN, ENV, WORKDIR, USER
	Args []string `json:"args,omitempty"`
	// FilesHash names the uploaded archive of a COPY.
	FilesHash string `json:"filesHash,omitempty"`
	Force     bool   `json:"force,omitempty"` // do it and all that follow, whatever the cache has
}

// BuildListOptions selects builds.
type BuildListOptions struct {
	Template string       // name or ID; "" is all
	States   []BuildState // none is all
	Limit    int          // 0 is 100
}

// BuildLogOptions selects lines of a build's log.
type BuildLogOptions struct {
	Offset int  // number of lines to pass over, of those that MinLevel lets through
	Limit  int  // 0 is all
	Follow bool // wait for more until the build has ended
	// MinLevel passes over lines of lower levels; "" is all.
	MinLevel string
}

// BuildLog is one line of a build's log.
type BuildLog struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`            // debug, info, warn, error
	Source  string    `json:"source,omitempty"` // build, stdout, stderr
	Message string    `json:"message"`
	Step    string    `json:"step,omitempty"` // as BuildReason.Step
}

// TemplateTag is a tag of a template, and the build that it points to.
type TemplateTag struct {
	Tag        string    `json:"tag"`
	TemplateID string    `json:"templateID"`
	BuildID    string    `json:"buildID"`
	Created    time.Time `json:"created"`
}

// NoBuilder is a [Builder] that builds nothing.
type NoBuilder struct{}

const noBuilds = "builds of templates"

// StartBuild implements Builder.
func (NoBuilder) StartBuild(context.Context, BuildSpec) (Build, error) {
	return Build{}, lacking("build template", noBuilds)
}

// GetBuild implements Builder.
func (NoBuilder) GetBuild(context.Context, string) (Build, error) {
	return Build{}, lacking("get build", noBuilds)
}

// ListBuilds implements Builder.
func (NoBuilder) ListBuilds(context.Context, BuildListOptions) ([]Build, error) {
	return nil, lacking("list builds", noBuilds)
}

// BuildLogs implements Builder.
func (NoBuilder) BuildLogs(context.Context, string, BuildLogOptions) iter.Seq2[BuildLog, error] {
	return func(yield func(BuildLog, error) bool) {
		yield(BuildLog{}, lacking("read build log", noBuilds))
	}
}

// CancelBuild implements Builder.
func (NoBuilder) CancelBuild(context.Context, string) (Build, error) {
	return Build{}, lacking("cancel build", noBuilds)
}

// TagTemplate implements Builder.
func (NoBuilder) TagTemplate(context.Context, string, []string) (TemplateTag, error) {
	return TemplateTag{}, lacking("tag template", noBuilds)
}

// UntagTemplate implements Builder.
func (NoBuilder) UntagTemplate(context.Context, string, []string) error {
	return lacking("remove tag", noBuilds)
}

// TemplateTags implements Builder.
func (NoBuilder) TemplateTags(context.Context, string) ([]TemplateTag, error) {
	return nil, lacking("list tags", noBuilds)
}
