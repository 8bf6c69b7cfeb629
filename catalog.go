package carrel

import (
	"context"
	"time"
)

// Catalog tells what is in templates and what uses them. It is an optional part of a [Service]; see
// [Extras].
type Catalog interface {
	// TemplatePackages lists the packages that are installed in a template, as its own databases
	// of packages say. Errors: NotFound, Unsupported (a template without files).
	TemplatePackages(ctx context.Context, nameOrID string) (TemplatePackages, error)
	// TemplateChanges lists the files of template to that differ from those of template from,
	// sorted by path. Errors: NotFound, Unsupported (a template without files), Exhausted (too many).
	TemplateChanges(ctx context.Context, from, to string) ([]FileChange, error)
	// TemplateUses counts what lies on each image of the project. Images that nothing uses are left
	// out.
	TemplateUses(ctx context.Context) ([]TemplateUse, error)
	// CollectTemplates removes the caches of builds: bases that were pulled, and layers of steps. It
	// never removes anything that a template, a sandbox or a snapshot lies on. Later builds fetch
	// and do these things again.
	CollectTemplates(ctx context.Context, opts CollectOptions) (Collected, error)
}

// TemplatePackages are the packages in a template.
type TemplatePackages struct {
	Template string `json:"template"`         // its name
	ID       string `json:"id"`               // of the image
	Digest   string `json:"digest,omitempty"` // of the image
	// its ID and version, such as "debian 13"; "" if unknown
	System   string    `json:"system,omitempty"`
	Packages []Package `json:"packages"`
}

// Package is one installed package.
type Package struct {
	Kind    string `json:"kind"` // deb, apk, pypi, npm
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch,omitempty"`
	License string `json:"license,omitempty"` // as the package states it
	URL     string `json:"purl"`              // a package URL
	Path    string `json:"path"`              // of the file that says so
}

// TemplateUse counts the users of one image.
type TemplateUse struct {
	ID        string `json:"id"` // of the image
	Sandboxes int    `json:"sandboxes"`
	Snapshots int    `json:"snapshots"`
}

// CollectOptions select what CollectTemplates removes.
type CollectOptions struct {
	OlderThan time.Duration `json:"olderThan,omitempty"` // since it was made; 0 is any age
	DryRun    bool          `json:"dryRun,omitempty"`    // remove nothing
}

// Collected is what CollectTemplates removed, or would remove.
type Collected struct {
	Items []CollectedItem `json:"items"`
	// Bytes is the sum of the items' sizes. Files that others share may free less.
	Bytes int64 `json:"bytes"`
}

// CollectedItem is one thing of a build cache.
type CollectedItem struct {
	Kind    string    `json:"kind"` // base, layer, image (a template's image that became thin)
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

// NoCatalog is a [Catalog] for services that have none.
type NoCatalog struct{}

const noCatalog = "catalog of templates"

// TemplatePackages implements Catalog.
func (NoCatalog) TemplatePackages(context.Context, string) (TemplatePackages, error) {
	return TemplatePackages{}, lacking("list packages", noCatalog)
}

// TemplateChanges implements Catalog.
func (NoCatalog) TemplateChanges(context.Context, string, string) ([]FileChange, error) {
	return nil, lacking("compare templates", noCatalog)
}

// TemplateUses implements Catalog.
func (NoCatalog) TemplateUses(context.Context) ([]TemplateUse, error) {
	return nil, lacking("count uses of templates", noCatalog)
}

// CollectTemplates implements Catalog.
func (NoCatalog) CollectTemplates(context.Context, CollectOptions) (Collected, error) {
	return Collected{}, lacking("collect templates", noCatalog)
}
