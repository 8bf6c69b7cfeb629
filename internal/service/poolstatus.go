package service

import (
	"cmp"

	"github.com/carrel-dev/carrel"
)

var _ carrel.Pools = (*Service)(nil)

// comparePoolKinds orders kinds by template, then by size.
func comparePoolKinds(a, b carrel.PoolKind) int {
	return cmp.Or(cmp.Compare(a.Template, b.Template), cmp.Compare(a.Tier, b.Tier),
		cmp.Compare(a.Limits.CPUs, b.Limits.CPUs), cmp.Compare(a.Limits.MemoryMB, b.Limits.MemoryMB),
		cmp.Compare(a.Limits.DiskMB, b.Limits.DiskMB), cmp.Compare(a.Limits.Pids, b.Limits.Pids))
}
