package interp

import (
	"slices"
)

// setPipeStatus sets PIPESTATUS to one command's status.
func (r *runner) setPipeStatus(code int) { r.pipeStatus = append(r.pipeStatus[:0], code&0xff) }

// setPipeStatuses sets PIPESTATUS to the statuses of a pipeline's members.
func (r *runner) setPipeStatuses(codes []int) { r.pipeStatus = append(r.pipeStatus[:0], codes...) }

// savePipeStatus and restorePipeStatus preserve PIPESTATUS during a trap.
func (r *runner) savePipeStatus() []int { return slices.Clone(r.pipeStatus) }

func (r *runner) restorePipeStatus(codes []int) { r.setPipeStatuses(codes) }
