package api

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// e2bTagRoutes are E2B's views of a template's tags.
type e2bTagRoutes struct{ *Server }

func (s e2bTagRoutes) add() {
	s.handle("GET /templates/{id}/tags/count", s.count)
	s.handle("GET /templates/{id}/tags/exists", s.exists)
	s.handle("GET /templates/{id}/tags/groups", s.groups)
	s.handle("GET /templates/{id}/tags/{tag}/assignments", s.assignments)
}

// tagCountBody is E2B's TemplateTagsCountResponse.
type tagCountBody struct {
	Total int `json:"total"`
}

// tagExistsBody is E2B's TemplateTagExistsResponse.
type tagExistsBody struct {
	Exists        bool   `json:"exists"`
	NormalizedTag string `json:"normalizedTag"`
}

// assignmentBody is E2B's TemplateTagAssignment: the moment when a tag began to mean a build.
type assignmentBody struct {
	AssignmentID    string     `json:"assignmentID"`
	BuildID         string     `json:"buildID"`
	AssignedAt      time.Time  `json:"assignedAt"`
	BuildCreatedAt  time.Time  `json:"buildCreatedAt"`
	BuildFinishedAt *time.Time `json:"buildFinishedAt"`
}

// assignmentsBody is E2B's TemplateTagAssignmentsResponse.
type assignmentsBody struct {
	Data       []assignmentBody `json:"data"`
	NextCursor *string          `json:"nextCursor"`
}

// tagGroupBody is E2B's TemplateTagGroup.
type tagGroupBody struct {
	Tag         string           `json:"tag"`
	Assignments []assignmentBody `json:"assignments"`
	HasMore     bool             `json:"hasMore"`
}

// tagGroupsBody is E2B's TemplateTagGroupsResponse.
type tagGroupsBody struct {
	Tags       []tagGroupBody `json:"tags"`
	NextCursor *string        `json:"nextCursor"`
}

// tagSorts are the orders of groups. The first is the usual one.
var tagSorts = []string{"latest_desc", "latest_asc", "name_asc", "name_desc"}

// history returns the tags of a template, and for each one when it began to mean which build, the
// newest first. A build that succeeded gave itself its tags when it ended. Of tags that were moved
// by hand, only the present place is known.
func (s e2bTagRoutes) history(r *http.Request) (map[string][]assignmentBody, error) {
	id := r.PathValue("id")
	tags, err := s.opts.Service.TemplateTags(r.Context(), id)
	if err := noTemplate(err, id); err != nil {
		return nil, err
	}
	out := map[string][]assignmentBody{}
	if len(tags) == 0 {
		return out, nil
	}
	builds, err := s.opts.Service.ListBuilds(r.Context(),
		carrel.BuildListOptions{Template: tags[0].TemplateID})
	if err != nil {
		return nil, err
	}
	for _, t := range tags {
		all := []assignmentBody{assigned(t, builds)}
		for _, b := range builds {
			if b.State == carrel.BuildReady && b.ID != t.BuildID && b.Ended.Before(t.Created) &&
				(slices.Contains(b.Tags, t.Tag) || len(b.Tags) == 0 && t.Tag == defaultTag) {
				all = append(all, assigned(carrel.TemplateTag{Tag: t.Tag, TemplateID: t.TemplateID,
					BuildID: b.ID,
					Created: b.Ended}, builds))
			}
		}
		slices.SortFunc(all, func(x, y assignmentBody) int { return y.AssignedAt.Compare(x.AssignedAt) })
		out[t.Tag] = all
	}
	return out, nil
}

// assigned converts a tag's place. builds has the times of its build, unless that is forgotten.
func assigned(t carrel.TemplateTag, builds []carrel.Build) assignmentBody {
	sum := sha256.Sum256([]byte(t.TemplateID + "\x00" + t.Tag + "\x00" + t.BuildID + "\x00" + t.Created.UTC().Format(time.RFC3339Nano)))
	out := assignmentBody{AssignmentID: uuid(sum), BuildID: t.BuildID, AssignedAt: t.Created.UTC(),
		BuildCreatedAt: t.Created.UTC()}
	for _, b := range builds {
		if b.ID == t.BuildID {
			ended := b.Ended.UTC()
			out.BuildCreatedAt, out.BuildFinishedAt = b.Created.UTC(), &ended
		}
	}
	return out
}

// uuid makes a UUID of a fingerprint.
func uuid(h [sha256.Size]byte) string {
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8 (our own), variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func (s e2bTagRoutes) count(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.TemplateTags(r.Context(), r.PathValue("id"))
	if err := noTemplate(err, r.PathValue("id")); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, tagCountBody{len(all)})
	return nil
}

// defaultTag is the tag of a template without one.
const defaultTag = "default"

// normalTag is the form in which a tag is kept: latest is another word for default.
func normalTag(tag string) string {
	if tag = strings.ToLower(strings.TrimSpace(tag)); tag == "latest" {
		return defaultTag
	}
	return tag
}

func (s e2bTagRoutes) exists(w http.ResponseWriter, r *http.Request) error {
	tag := normalTag(r.URL.Query().Get("tag"))
	switch {
	case tag == "":
		return invalid("tag", "missing")
	case len(tag) > maxName:
		return invalid("tag", "longer than %d characters", maxName)
	}
	all, err := s.opts.Service.TemplateTags(r.Context(), r.PathValue("id"))
	if err := noTemplate(err, r.PathValue("id")); err != nil {
		return err
	}
	has := slices.ContainsFunc(all, func(t carrel.TemplateTag) bool { return t.Tag == tag })
	writeJSON(w, http.StatusOK, tagExistsBody{has, tag})
	return nil
}

// bounded reads a number from 1 to maxPage.
func bounded(q url.Values, name string, usual int) (int, error) {
	v := q.Get(name)
	if v == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxPage {
		return 0, invalid(name, "%q is not a whole number from 1 to %d", clip(v), maxPage)
	}
	return n, nil
}

// groups lists the tags page by page, each with its newest assignments. A cursor is the last tag of
// the page before.
func (s e2bTagRoutes) groups(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	most, err := bounded(q, "tagsLimit", 25)
	if err != nil {
		return err
	}
	each, err := bounded(q, "assignmentLimit", 6)
	if err != nil {
		return err
	}
	if err := oneOf(q, "sort", tagSorts...); err != nil {
		return err
	}
	all, err := s.history(r)
	if err != nil {
		return err
	}
	names := []string{}
	for tag := range all {
		if strings.Contains(tag, strings.ToLower(q.Get("search"))) {
			names = append(names, tag)
		}
	}
	sortTags(names, all, cmp.Or(q.Get("sort"), tagSorts[0]))
	if after := q.Get("tagsCursor"); after != "" {
		i := slices.Index(names, after)
		if i < 0 {
			return invalid("tagsCursor", "there is no tag %q any more: begin with the first page",
				clip(after))
		}
		names = names[i+1:]
	}
	out := tagGroupsBody{Tags: []tagGroupBody{}}
	if len(names) > most {
		names = names[:most]
		out.NextCursor = &names[most-1]
	}
	for _, tag := range names {
		list := all[tag]
		out.Tags = append(out.Tags, tagGroupBody{tag, list[:min(each, len(list))],
			len(list) > each})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// sortTags sorts tags by name, or by their newest assignment and then by name.
func sortTags(names []string, all map[string][]assignmentBody, order string) {
	by, direction, _ := strings.Cut(order, "_")
	sign := 1
	if direction == "desc" {
		sign = -1
	}
	slices.SortFunc(names, func(x, y string) int {
		if by == "latest" {
			if c := all[x][0].AssignedAt.Compare(all[y][0].AssignedAt); c != 0 {
				return sign * c
			}
			return strings.Compare(x, y)
		}
		return sign * strings.Compare(x, y)
	})
}

// assignments lists one tag's assignments page by page. A cursor is the last assignment's ID.
func (s e2bTagRoutes) assignments(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	most, err := bounded(q, "limit", 50)
	if err != nil {
		return err
	}
	all, err := s.history(r)
	if err != nil {
		return err
	}
	list := all[normalTag(r.PathValue("tag"))]
	if after := q.Get("cursor"); after != "" {
		i := slices.IndexFunc(list, func(a assignmentBody) bool { return a.AssignmentID == after })
		if i < 0 {
			return invalid("cursor", "%q is no assignment of this tag: begin with the first page",
				clip(after))
		}
		list = list[i+1:]
	}
	out := assignmentsBody{Data: list[:min(most, len(list))]}
	if len(list) > most {
		out.NextCursor = &list[most-1].AssignmentID
	}
	if out.Data == nil {
		out.Data = []assignmentBody{}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
