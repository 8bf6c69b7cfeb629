package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
)

// shortLen is how many characters of a snapshot's ID are shown where room is short. It is also the
// least that is accepted as an ID. With 7 random characters of 36, the chance that one of 10,000
// snapshots begins with a given word is 1 in 8 million.
const shortLen = 8

// short returns the beginning of a snapshot's ID.
func short(id carrel.SnapshotID, n int) string { return string(id[:min(n, len(id))]) }

// shortIDs returns how many characters distinguish all these snapshots.
func shortIDs(snaps []carrel.Snapshot) int {
	for n := shortLen; ; n++ {
		seen, clash, cutShort := make(map[string]carrel.SnapshotID, len(snaps)), false, false
		for _, s := range snaps {
			cutShort = cutShort || len(s.ID) > n
			other, there := seen[short(s.ID, n)]
			clash = clash || (there && other != s.ID)
			seen[short(s.ID, n)] = s.ID
		}
		if !clash || !cutShort {
			return n
		}
	}
}

// candidates lists the snapshots that the beginning of an ID may mean.
type candidates func(context.Context, carrel.Service) ([]carrel.Snapshot, error)

// resolveSnapshot finds a snapshot by its ID, by a name, or by the beginning of an ID as timeline
// shows it. The daemon knows only the first two. The meaning of an abbreviation changes as
// snapshots come and go, so an API should not use it.
func resolveSnapshot(ctx context.Context, svc carrel.Service, arg string, among candidates) (carrel.SnapshotID, error) {
	if id, err := carrel.ParseSnapshotID(arg); err == nil {
		return id, nil
	}
	if _, err := carrel.ParseID(arg); err == nil {
		return "", &carrel.Error{Op: "find snapshot", Kind: carrel.Invalid, Field: "snapshot", Err: fmt.Errorf("%s is a sandbox's ID", arg),
			Hint: "its snapshots: carrel timeline " + arg}
	}
	snap, err := svc.GetSnapshot(ctx, arg)
	if err == nil {
		return snap.ID, nil
	}
	if kind := carrel.KindOf(err); (kind != carrel.NotFound && kind != carrel.Invalid) || !isShortID(arg) {
		return "", err
	}
	all, listErr := among(ctx, svc)
	if listErr != nil {
		return "", listErr
	}
	found := map[carrel.SnapshotID]bool{}
	var match carrel.SnapshotID
	for _, s := range all {
		if strings.HasPrefix(string(s.ID), arg) {
			found[s.ID], match = true, s.ID
		}
	}
	switch len(found) {
	case 0:
		return "", err
	case 1:
		return match, nil
	}
	return "", &carrel.Error{Op: "find snapshot", Kind: carrel.Invalid, Field: "snapshot",
		Err: fmt.Errorf("%d snapshots begin with %s", len(found), arg), Hint: "give more of its ID: carrel --json snapshot ls --all"}
}

// isShortID reports whether a text can be the beginning of a snapshot's ID.
func isShortID(s string) bool {
	return len(s) >= shortLen && s[0] == 's' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// allSnapshots returns all snapshots as candidates, if no sandbox limits them.
func allSnapshots(ctx context.Context, svc carrel.Service) ([]carrel.Snapshot, error) {
	return listSnapshots(ctx, svc, carrel.SnapshotListOptions{Auto: true}, 0)
}

// snapshotsOf returns the candidates on one sandbox's timeline.
func snapshotsOf(id carrel.ID) candidates {
	return func(ctx context.Context, svc carrel.Service) ([]carrel.Snapshot, error) {
		tl, err := svc.Timeline(ctx, id)
		return tl.Snapshots, err
	}
}

// listSnapshots reads all pages of a list; limit 0 is no limit.
func listSnapshots(ctx context.Context, svc carrel.Service, opts carrel.SnapshotListOptions, limit int) ([]carrel.Snapshot, error) {
	all := []carrel.Snapshot{}
	for {
		page, err := svc.ListSnapshots(ctx, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Snapshots...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if page.Next == "" {
			return all, nil
		}
		opts.Cursor = page.Next
	}
}
