package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// counts are what the database and the front have done so far.
type counts struct {
	rows int64   // inserted, changed or deleted
	wal  int64   // bytes of the database's log
	cpu  float64 // seconds of the front
}

// count reads the counters. The database writes its own down about once a second.
func (f *fleet) count(ctx context.Context) (c counts, err error) {
	psql := exec.CommandContext(ctx, filepath.Join(os.Getenv("CARREL_POSTGRES"), "bin", "psql"), "-XAtq", "-F", " ", "-d", f.state, "-c",
		`SELECT (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables)::bigint, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint`)
	out, err := psql.Output()
	if err == nil {
		_, err = fmt.Sscan(string(out), &c.rows, &c.wal)
	}
	if err != nil {
		return c, fmt.Errorf("read the database's counts: %w", err)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.frontPID))
	if err != nil {
		return c, err
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	for _, i := range []int{11, 12} { // user and system time, in ticks
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return c, err
		}
		c.cpu += float64(n) / ticks
	}
	return c, nil
}

// ticks are Linux's in a second, for programs.
const ticks = 100

// less are the counts since others.
func (c counts) less(o counts) counts {
	return counts{c.rows - o.rows, c.wal - o.wal, c.cpu - o.cpu}
}
