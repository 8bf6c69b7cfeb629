package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// The kinds of Origin, from the weakest to the strongest.
const (
	BuiltIn     = "built-in"
	File        = "file"
	Environment = "environment"
	Flag        = "flag"
)

// Origin says where the value of a setting comes from.
type Origin struct {
	Kind string // BuiltIn, File, Environment or Flag
	// Where is the place: FILE:LINE, the variable's name, or the flag. It is "" for BuiltIn.
	Where string
}

// Origins has the origin of each setting, by the flag's name.
type Origins map[string]Origin

// setting is one line of a configuration file.
type setting struct {
	values []string
	where  string
}

// Variable returns the environment variable of a flag: CARREL_MAX_PAUSED for max-paused.
func Variable(flag string) string {
	return "CARREL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// DefaultFile returns the file that is read if none is named: the system's for root, the user's own
// for others. It need not exist.
func DefaultFile(uid int, getenv func(string) string) string {
	if uid == 0 {
		return "/etc/carrel/carrel.yaml"
	}
	return filepath.Join(UserConfig(getenv), "carrel.yaml")
}

// UserConfig returns the directory of a user's own settings.
func UserConfig(getenv func(string) string) string {
	return userDir(getenv, "XDG_CONFIG_HOME", ".config")
}

// Load sets the settings that the command line did not give. Each comes from the environment, else
// from the file, else keeps its built-in value. flags are those of [Config.Flags], parsed. A
// missing file is an error only with must. Settings without a flag, such as an object store's keys,
// come only from the environment.
//
// Errors are Invalid. They name the variable, or the file, the line and the key.
func (c *Config) Load(flags *pflag.FlagSet, file string, must bool, getenv func(string) string) (Origins, error) {
	c.S3.applyEnv(getenv)
	fromFile, err := readSettings(flags, file, must)
	if err != nil {
		return nil, err
	}
	origins := Origins{}
	flags.VisitAll(func(f *pflag.Flag) {
		origin := Origin{Kind: BuiltIn}
		variable := Variable(f.Name)
		set, inFile := fromFile[f.Name]
		switch text := getenv(variable); {
		case f.Changed:
			origin = Origin{Flag, "--" + f.Name}
		case text != "":
			origin = Origin{Environment, variable}
			err = errors.Join(err, assign(f, origin, variable, text))
		case inFile:
			origin = Origin{File, set.where}
			err = errors.Join(err, assign(f, origin, f.Name, set.values...))
		}
		origins[f.Name] = origin
	})
	if err != nil {
		return nil, firstError(err)
	}
	return origins, nil
}

// firstError returns the first of joined errors: the user gets one mistake at a time.
func firstError(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			return err
		}
		err = joined.Unwrap()[0]
	}
}

// assign sets a flag to one value, or to several parts.
func assign(f *pflag.Flag, origin Origin, field string, values ...string) error {
	for _, v := range values {
		if err := f.Value.Set(v); err != nil {
			return &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: field, Err: notA(f.Value.Type(), v, err),
				Hint: "it comes from " + origin.Where}
		}
	}
	return nil
}

// notA returns an error that says what the value should be.
func notA(typ, text string, err error) error {
	form := map[string]string{"int": "a whole number", "float64": "a number", "bool": "true or false", "duration": "a duration such as 90s or 2h"}[typ]
	if form != "" {
		return fmt.Errorf("%q is not %s", text, form)
	}
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		return ce.Err
	}
	return err
}

// readSettings reads a configuration file: a YAML mapping whose keys are the names of flags.
func readSettings(flags *pflag.FlagSet, file string, must bool) (map[string]setting, error) {
	raw, err := readTrusted(file)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return nil, nil
	}
	if err != nil {
		return nil, settingError("config", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, settingError("config", fmt.Errorf("%s: %w", file, err))
	}
	if len(doc.Content) == 0 {
		return nil, nil // empty, or comments only
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, settingError("config", fmt.Errorf("%s:%d: not a list of KEY: VALUE lines", file, root.Line))
	}
	found := map[string]setting{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		where := fmt.Sprintf("%s:%d", file, key.Line)
		if flags.Lookup(key.Value) == nil {
			return nil, unknownKey(flags, key.Value, where)
		}
		if _, twice := found[key.Value]; twice {
			return nil, settingError(key.Value, fmt.Errorf("%s: given twice", where))
		}
		values, err := texts(value)
		if err != nil {
			return nil, settingError(key.Value, fmt.Errorf("%s: %w", where, err))
		}
		found[key.Value] = setting{values, where}
	}
	return found, nil
}

// texts returns the values of a setting: one, or a list of several.
func texts(n *yaml.Node) ([]string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, errors.New(`it has no value; "" is the empty text`)
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, nil
	case n.Kind != yaml.SequenceNode:
		return nil, errors.New("it takes a value or a list of values")
	}
	var all []string
	for _, one := range n.Content {
		if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
			return nil, errors.New("its list holds something that is no value")
		}
		all = append(all, one.Value)
	}
	return all, nil
}

// unknownKey returns an error for a key, and names a key with the same beginning.
func unknownKey(flags *pflag.FlagSet, key, where string) error {
	err := &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: key, Err: fmt.Errorf("%s: there is no such setting", where),
		Hint: "the keys are the flags of carrel serve, without the dashes; carrel config lists them"}
	plain := strings.ToLower(strings.Trim(strings.ReplaceAll(key, "_", "-"), "-"))
	if flags.Lookup(plain) != nil {
		err.Hint = "write it " + plain
	}
	return err
}

// settingError returns an Invalid error about one setting.
func settingError(field string, err error) error {
	return &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: field, Err: err}
}

// readTrusted reads a file. It refuses one that another user may have written, because such a file
// could open the daemon to the network.
func readTrusted(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch root := os.Geteuid() == 0; {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", file)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	case info.Mode()&0o002 != 0, root && info.Mode()&0o020 != 0:
		return nil, fmt.Errorf("%s can be written by others (mode %04o); take that away: chmod go-w", file, info.Mode().Perm())
	case !ownedByUs(info):
		return nil, fmt.Errorf("%s belongs to another user, who could change it", file)
	}
	raw := make([]byte, info.Size())
	n, err := f.ReadAt(raw, 0)
	if int64(n) < info.Size() {
		return nil, err
	}
	return raw, nil
}

// Names returns the settings' names, in order.
func (o Origins) Names() []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Explain adds to an error about a setting where the value comes from.
func (o Origins) Explain(err error) error {
	ce, ok := errors.AsType[*carrel.Error](err)
	if !ok {
		return err
	}
	if origin := o[ce.Field]; (origin.Kind == File || origin.Kind == Environment) && ce.Hint == "" {
		told := *ce
		told.Hint = "it comes from " + origin.Where
		return &told
	}
	return err
}

// bad returns an Invalid error about one setting.
func bad(field, format string, args ...any) error {
	return settingError(field, fmt.Errorf(format, args...))
}
