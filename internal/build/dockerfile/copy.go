package dockerfile

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// checkPaths refuses a COPY or ADD without files.
func checkPaths(name string, c instructions.SourcesAndDest, line int) error {
	if len(c.SourcePaths)+len(c.SourceContents) == 0 {
		return lineError(carrel.Invalid, line, "%s names no file", name)
	}
	return nil
}

// copyCommand plans a COPY.
func (s *stage) copyCommand(c *instructions.CopyCommand, line int) (plan.Op, error) {
	out := &plan.Copy{Paths: c.SourcePaths, Parents: c.Parents, Exclude: c.ExcludePatterns,
		Link:  c.Link,
		Owner: c.Chown, Mode: c.Chmod}
	if c.From != "" {
		src, err := s.planner.copySource(c.From, s.index, line)
		if err != nil {
			return nil, err
		}
		if out.From, err = s.ready(src, c.From, line); err != nil {
			return nil, err
		}
		if len(c.SourceContents) > 0 {
			return nil, lineError(carrel.Invalid, line,
				"COPY --from takes no heredoc: it is no file of a stage")
		}
	}
	return s.finishCopy("COPY", out, c.SourcesAndDest, line)
}

// addCommand plans an ADD.
func (s *stage) addCommand(c *instructions.AddCommand, line int) (plan.Op, error) {
	out := &plan.Copy{Exclude: c.ExcludePatterns, Link: c.Link, Owner: c.Chown, Mode: c.Chmod,
		Unpack: true, Checksum: c.Checksum}
	for _, src := range c.SourcePaths {
		switch {
		case isGit(src):
			return nil, hinted(lineError(carrel.Unsupported, line, "ADD %s: a repository can't be added",
				src),
				"RUN git clone it, or ADD the archive that its host makes of it")
		case strings.HasPrefix(src, "http://"), strings.HasPrefix(src, "https://"):
			if u, err := url.Parse(src); err != nil || u.Host == "" {
				return nil, lineError(carrel.Invalid, line, "ADD %s: this is no address", src)
			}
			out.URLs = append(out.URLs, src)
		default:
			out.Paths = append(out.Paths, src)
		}
	}
	if c.Unpack != nil {
		out.Unpack, out.UnpackURLs = *c.Unpack, *c.Unpack
	}
	if c.KeepGitDir != nil && *c.KeepGitDir {
		return nil, lineError(carrel.Unsupported, line, "ADD --keep-git-dir: a repository can't be added")
	}
	if out.Checksum != "" {
		if len(out.URLs) != 1 || len(out.Paths)+len(c.SourceContents) > 0 {
			return nil, lineError(carrel.Invalid, line,
				"ADD --checksum is for exactly one address, and no other file")
		}
		if !checksumPattern.MatchString(out.Checksum) {
			return nil, lineError(carrel.Invalid, line,
				"ADD --checksum=%s: write sha256: and 64 hexadecimal digits", out.Checksum)
		}
	}
	return s.finishCopy("ADD", out, c.SourcesAndDest, line)
}

var checksumPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// gitPattern matches the addresses of repositories that Docker's ADD would clone.
var gitPattern = regexp.MustCompile(`^(git://|ssh://|git@|https?://[^?#]*\.git([#?].*)?$)`)

func isGit(src string) bool { return gitPattern.MatchString(src) }

// finishCopy fills in what COPY and ADD share.
func (s *stage) finishCopy(name string, out *plan.Copy, c instructions.SourcesAndDest,
	line int) (plan.Op, error) {
	if c.DestPath == "" {
		return nil, lineError(carrel.Invalid, line,
			"%s: the target is empty once its variables are filled in", name)
	}
	for _, p := range c.SourcePaths {
		if p == "" {
			return nil, lineError(carrel.Invalid, line,
				"%s: a path is empty once its variables are filled in", name)
		}
	}
	for _, f := range c.SourceContents {
		out.Inline = append(out.Inline, plan.File{Name: f.Path, Content: f.Data})
	}
	out.Target = s.absolute(c.DestPath)
	files := len(out.Paths) + len(out.URLs) + len(out.Inline)
	if files > 1 && !strings.HasSuffix(out.Target, "/") {
		return nil, hinted(lineError(carrel.Invalid, line,
			"%s of several files to %s, which is no directory", name, c.DestPath),
			"end the target with /")
	}
	if out.Mode != "" && !validMode(out.Mode) {
		return nil, hinted(lineError(carrel.Invalid, line, "%s --chmod=%s: this is no mode", name,
			out.Mode),
			"write it as 755 or u=rwX,go=rX")
	}
	return out, nil
}

// symbolicMode matches modes like "u=rwX,go-w".
var symbolicMode = regexp.MustCompile(`^[ugoa]*[-+=][rwxXst]*(,[ugoa]*[-+=][rwxXst]*)*$`)

func validMode(mode string) bool {
	if n, err := strconv.ParseUint(mode, 8, 32); err == nil {
		return n <= 0o7777
	}
	return symbolicMode.MatchString(mode)
}
