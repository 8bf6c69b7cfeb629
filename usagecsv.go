package carrel

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
)

// usageColumns are the names of the figures in a table of usage.
var usageColumns = []string{"alive_seconds", "vcpu_seconds", "memory_mib_seconds", "cpu_seconds",
	"memory_used_mib_seconds", "disk_used_mib_seconds", "bytes_out", "bytes_in", "snapshot_mib_seconds"}

// WriteUsageCSV writes a report as a table for spreadsheets: a head, a line for each group, and no
// line for the total. A label is a text of a stranger. One that a spreadsheet would take for a
// formula gets an apostrophe before it.
func WriteUsageCSV(w io.Writer, r UsageReport) error {
	out := csv.NewWriter(w)
	head := slices.Concat(mapEach(r.By, cell), usageColumns)
	if r.Currency != "" {
		head = append(head, cell("cost_"+r.Currency))
	}
	if err := out.Write(head); err != nil {
		return err
	}
	for _, row := range r.Rows {
		line := append(mapEach(row.Group, cell), row.AliveSeconds.String(), row.VCPUSeconds.String(),
			row.MemoryMiBSeconds.String(), row.CPUSeconds.String(), row.MemoryUsedMiBSeconds.String(),
			row.DiskUsedMiBSeconds.String(), strconv.FormatInt(row.BytesOut, 10), strconv.FormatInt(row.BytesIn, 10),
			row.SnapshotMiBSeconds.String())
		if r.Currency != "" {
			cost := ""
			if row.Cost != nil {
				cost = row.Cost.String()
			}
			line = append(line, cost)
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell makes a text harmless in a spreadsheet.
func cell(text string) string {
	if start := strings.TrimLeft(text, " \t\r\n\v\f\u00a0\ufeff"); text != "" && (strings.ContainsRune("\t\r\n", rune(text[0])) ||
		start != "" && strings.ContainsAny(start[:1], "=+-@|%") || strings.HasPrefix(start, "＝") ||
		strings.HasPrefix(start, "＋") || strings.HasPrefix(start, "－") || strings.HasPrefix(start, "＠")) {
		text = "'" + text
	}
	return strings.ReplaceAll(text, "\x00", "")
}

// mapEach applies fn to each text.
func mapEach(all []string, fn func(string) string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = fn(s)
	}
	return out
}
