package access

import (
	"context"
	"errors"

	"github.com/carrel-dev/carrel"
)

var errOtherProject = errors.New("this key is not for that project")

// metering is the part of a [Service] that tells what was used.
type metering struct {
	all    carrel.Metering
	nobody carrel.Caller
}

// Usage implements carrel.Metering. Members see what their own project used. Another project's name
// is an error, because an empty answer would look like an answer.
func (m metering) Usage(ctx context.Context, o carrel.UsageOptions) (carrel.UsageReport, error) {
	const op = "read usage"
	c, ctx, err := (&Service{opts: Options{Nobody: m.nobody}}).user(ctx, op)
	if err != nil {
		return carrel.UsageReport{}, err
	}
	if c.Role != carrel.RoleAdmin {
		if o.Project != "" && o.Project != c.Project {
			return carrel.UsageReport{}, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "project",
				Err:  errOtherProject,
				Hint: "leave the project out: the answer is about the key's own"}
		}
		o.Project = c.Project
	}
	return m.all.Usage(ctx, o)
}
