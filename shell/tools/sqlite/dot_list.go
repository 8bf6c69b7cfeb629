package sqlite

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// list prints names in columns as .tables does.
func (s *shell) list(names []string) error {
	width := 0
	for _, n := range names {
		width = max(width, utf8.RuneCountInString(n))
	}
	cols := max(80/(width+2), 1)
	rows := (len(names) + cols - 1) / cols
	for i := range rows {
		for j := i; j < len(names); j += rows {
			if j >= rows {
				s.w.WriteString("  ")
			}
			s.w.WriteString(pad(names[j], width, false, false))
		}
		s.w.WriteByte('\n')
	}
	_, err := s.w.Write(nil)
	return err
}

func (s *shell) names(query string, args ...any) (out []string, err error) {
	err = s.db.each(func(row []value) error { out = append(out, row[0].text); return s.Pay(int64(len(row[0].text))) }, query, args...)
	return out, err
}

func (s *shell) schemas() (names, files []string, err error) {
	err = s.db.each(func(row []value) error {
		names, files = append(names, row[1].text), append(files, row[2].text)
		return nil
	}, "PRAGMA database_list")
	return names, files, err
}

func (s *shell) tables(a []string) error {
	schemas, _, err := s.schemas()
	if err != nil {
		return err
	}
	pattern := "%"
	if len(a) > 0 {
		pattern = a[0]
	}
	var all []string
	for _, db := range schemas {
		prefix := "''"
		if db != "main" {
			prefix = quoteText(db + ".")
		}
		names, err := s.names("SELECT %s||name FROM %s.sqlite_schema WHERE type IN ('table','view') AND name NOT LIKE 'sqlite__%%' ESCAPE '_' AND name LIKE %s ORDER BY 1",
			prefix, quoteName(db), quoteText(pattern))
		if err != nil {
			return err
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return s.list(all)
}

func (s *shell) indexes(a []string) error {
	where := "name NOT LIKE 'sqlite__%' ESCAPE '_'"
	if len(a) > 0 {
		where = "tbl_name LIKE " + quoteText(a[0])
	}
	names, err := s.names("SELECT name FROM sqlite_schema WHERE type='index' AND %s ORDER BY 1", where)
	if err != nil {
		return err
	}
	return s.list(names)
}

func (s *shell) databases([]string) error {
	names, files, err := s.schemas()
	if err != nil {
		return err
	}
	for i, n := range names {
		if n == "temp" {
			continue
		}
		file := `""`
		if files[i] != "" {
			file = files[i]
		}
		mode := "r/w"
		if s.ro {
			mode = "r/o"
		}
		fmt.Fprintf(s.w, "%s: %s %s\n", n, file, mode)
	}
	return nil
}
