package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// schema is .schema.
func (s *shell) schema(a []string) error {
	pattern := "%"
	for _, x := range a {
		if !strings.HasPrefix(x, "-") {
			pattern = x
		}
	}
	schemas, _, err := s.schemas()
	if err != nil {
		return err
	}
	if strings.EqualFold(pattern, "sqlite_schema") || strings.EqualFold(pattern, "sqlite_master") {
		s.w.WriteString("CREATE TABLE " + pattern + " (\n  type text,\n  name text,\n  tbl_name text,\n  rootpage integer,\n  sql text\n);\n")
		return nil
	}
	for _, db := range schemas {
		err := s.db.each(func(row []value) error {
			sql := row[0].text
			if strings.HasPrefix(sql, `CREATE TABLE "`) || strings.HasPrefix(sql, "CREATE TABLE '") {
				sql = "CREATE TABLE IF NOT EXISTS " + sql[len("CREATE TABLE "):]
			}
			s.w.WriteString(sql)
			if row[1].text == "view" || strings.HasPrefix(sql, "CREATE VIRTUAL") {
				cols, err := s.names("SELECT name FROM pragma_table_info(%s)", quoteText(row[2].text))
				if err == nil {
					for i := range cols {
						cols[i] = identifier(cols[i])
					}
					s.w.WriteString("\n/* " + identifier(row[2].text) + "(" + strings.Join(cols, ",") + ") */")
				}
			}
			_, err := s.w.WriteString(";\n")
			return err
		}, "SELECT sql, type, name FROM %s.sqlite_schema WHERE sql NOT NULL AND (name LIKE %s OR tbl_name LIKE %s) ORDER BY rowid",
			quoteName(db), quoteText(pattern), quoteText(pattern))
		if err != nil {
			return err
		}
	}
	return nil
}

// dump is .dump: it prints the database as SQL.
func (s *shell) dump(a []string) error {
	w := s.w
	w.WriteString("PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n")
	where := "1"
	for _, x := range a {
		switch {
		case strings.HasPrefix(x, "-"):
		case where == "1":
			where = "tbl_name LIKE " + quoteText(x)
		default:
			where += " OR tbl_name LIKE " + quoteText(x)
		}
	}
	type entry struct{ name, sql string }
	var tables []entry
	err := s.db.each(func(row []value) error {
		tables = append(tables, entry{row[0].text, row[1].text})
		return nil
	}, "SELECT name, sql FROM sqlite_schema WHERE (%s) AND type='table' AND sql NOT NULL ORDER BY tbl_name='sqlite_sequence', rowid", where)
	for _, t := range tables {
		if err != nil {
			break
		}
		switch {
		case t.name == "sqlite_sequence":
			w.WriteString("DELETE FROM sqlite_sequence;\n")
		case strings.HasPrefix(t.name, "sqlite_stat"):
			w.WriteString("ANALYZE sqlite_schema;\n")
		case strings.HasPrefix(t.name, "sqlite_"):
			continue
		case strings.HasPrefix(t.sql, "CREATE VIRTUAL"):
			w.WriteString(t.sql + ";\n")
			continue
		case strings.HasPrefix(t.sql, `CREATE TABLE "`) || strings.HasPrefix(t.sql, "CREATE TABLE '"):
			w.WriteString("CREATE TABLE IF NOT EXISTS " + t.sql[len("CREATE TABLE "):] + ";\n")
		default:
			w.WriteString(t.sql + ";\n")
		}
		var cols []string
		if cols, err = s.names("SELECT name FROM pragma_table_info(%s)", quoteText(t.name)); err != nil || len(cols) == 0 {
			break
		}
		for i := range cols {
			cols[i] = quoteName(cols[i])
		}
		err = s.db.each(func(row []value) error {
			w.WriteString("INSERT INTO " + identifier(t.name) + " VALUES(")
			size := 0
			for i, v := range row {
				if i > 0 {
					w.WriteByte(',')
				}
				w.WriteString(literal(v, true))
				size += len(v.text)
			}
			if !s.Step(1 + size>>5) {
				return tool.ErrStop
			}
			_, err := w.WriteString(");\n")
			return err
		}, "SELECT %s FROM %s", strings.Join(cols, ","), quoteName(t.name))
	}
	if err == nil {
		err = s.db.each(func(row []value) error {
			_, err := w.WriteString(row[0].text + ";\n")
			return err
		}, "SELECT sql FROM sqlite_schema WHERE (%s) AND sql NOT NULL AND type IN ('index','trigger','view') ORDER BY rowid", where)
	}
	if err != nil {
		w.WriteString("ROLLBACK; -- due to errors\n")
		return err
	}
	_, err = w.WriteString("COMMIT;\n")
	return err
}

// importFile is .import.
func (s *shell) importFile(a []string) error {
	col, row := s.col, s.row
	var args []string
	skip := 0
	csv := s.mode == "csv"
	for i := 0; i < len(a); i++ {
		switch strings.TrimPrefix(a[i], "-") {
		case "-csv":
			csv = true
		case "-ascii":
			col, row = "\x1f", "\x1e"
		case "-skip":
			if i++; i < len(a) {
				skip, _ = strconv.Atoi(a[i])
			}
		case "-schema":
			i++
		case "-v":
		default:
			if strings.HasPrefix(a[i], "-") {
				return fmt.Errorf("ERROR: unknown option: \"%s\".  Usage:", a[i])
			}
			args = append(args, a[i])
		}
	}
	if len(args) != 2 {
		return errors.New("ERROR: missing FILE argument. Usage:")
	}
	if csv && s.mode != "csv" {
		col, row = ",", "\n"
	}
	if row == "\r\n" {
		row, s.row = "\n", "\n" // the real one forgets it, too
	}
	if len(col) != 1 || len(row) != 1 {
		return errors.New("Error: multi-character column separators not allowed for import")
	}
	if strings.HasPrefix(args[0], "|") {
		return errors.New("Error: import from a command is not available here")
	}
	in, err := s.OpenIn(args[0])
	if err != nil {
		return fmt.Errorf("Error: cannot open \"%s\"", args[0])
	}
	data, err := s.ReadAll(in)
	_ = in.Close() // it was read
	if err != nil {
		return err
	}
	defer func() { _ = s.Pay(-int64(len(data))) }()
	r := &fields{data: bytes.TrimPrefix(data, []byte("\ufeff")), col: col[0], row: row[0]}
	for range skip {
		if _, err := r.next(); err != nil {
			break
		}
	}
	return s.load(r, args[0], args[1])
}

// load inserts rows into a table. It makes the table if there is none.
func (s *shell) load(r *fields, file, table string) error {
	cols, err := s.names("SELECT name FROM pragma_table_info(%s)", quoteText(table))
	if err != nil {
		return err
	}
	if len(cols) == 0 {
		head, err := r.next()
		if err != nil {
			return fmt.Errorf("%s: empty file", file)
		}
		defs := make([]string, len(head))
		seen := map[string]bool{}
		for i, h := range head {
			if h == "" {
				h = "?"
			}
			for n, base := 1, h; seen[strings.ToLower(h)]; n++ {
				h = base + "_" + strconv.Itoa(n)
			}
			seen[strings.ToLower(h)] = true
			defs[i] = quoteName(h) + " TEXT"
		}
		if err := s.db.run("CREATE TABLE " + quoteName(table) + "(\n" + strings.Join(defs, ", ") + ")"); err != nil {
			return err
		}
		cols = head
	}
	auto := true
	if err := s.db.run("BEGIN"); err != nil {
		auto = false // inside the user's transaction
	}
	for line := 1; ; line++ {
		row, err := r.next()
		if err == io.EOF {
			break
		}
		if !s.Step(10 + 4*len(row)) {
			return tool.ErrStop
		}
		if len(row) != len(cols) {
			more := "filling the rest with NULL"
			if len(row) > len(cols) {
				more = "extras ignored"
			}
			s.complain("%s:%d: expected %d columns but found %d - %s", file, r.line, len(cols), len(row), more)
		}
		vals := make([]string, len(cols))
		for i := range vals {
			vals[i] = "NULL"
			if i < len(row) {
				vals[i] = quoteText(row[i])
			}
		}
		if err := s.db.run("INSERT INTO " + quoteName(table) + " VALUES(" + strings.Join(vals, ",") + ")"); err != nil {
			s.complain("%s:%d: INSERT failed: %v", file, r.line, err)
		}
	}
	if auto {
		return s.db.run("COMMIT")
	}
	return nil
}

// fields reads values that are separated by a delimiter.
type fields struct {
	data     []byte
	col, row byte
	line     int
}

func (r *fields) next() ([]string, error) {
	if len(r.data) == 0 {
		return nil, io.EOF
	}
	r.line++
	var out []string
	for {
		var field []byte
		if len(r.data) > 0 && r.data[0] == '"' {
			r.data = r.data[1:]
			for len(r.data) > 0 {
				i := bytes.IndexByte(r.data, '"')
				if i < 0 {
					field = append(field, r.data...)
					r.data = nil
					break
				}
				field = append(field, r.data[:i]...)
				r.data = r.data[i+1:]
				if len(r.data) == 0 || r.data[0] != '"' {
					break
				}
				field = append(field, '"')
				r.data = r.data[1:]
			}
		}
		i := 0
		for i < len(r.data) && r.data[i] != r.col && r.data[i] != r.row {
			i++
		}
		field = append(field, r.data[:i]...)
		last := i >= len(r.data) || r.data[i] == r.row
		if last && r.row == '\n' {
			field = bytes.TrimSuffix(field, []byte("\r"))
		}
		out = append(out, string(field))
		r.data = r.data[min(i+1, len(r.data)):]
		if last {
			return out, nil
		}
	}
}
