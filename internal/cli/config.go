package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel/internal/config"
)

// sources are the daemon's settings before they are read from flags, variables and a file.
type sources struct {
	cfg      config.Config
	file     string // --config
	settings *pflag.FlagSet
	flags    *pflag.FlagSet // the settings, and --config
	origins  config.Origins
}

func newSources() *sources {
	s := &sources{cfg: config.Default()}
	s.settings = pflag.NewFlagSet("settings", pflag.ContinueOnError)
	s.cfg.Flags(s.settings)
	s.flags = pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.flags.AddFlagSet(s.settings)
	s.flags.StringVar(&s.file, "config", "", "file of settings, YAML (default: $CARREL_CONFIG, or "+config.DefaultFile(os.Geteuid(), os.Getenv)+" if there is one)")
	return s
}

// configFile returns the file to read, and whether the user named it.
func configFile(flag string) (file string, named bool) {
	if file = first(flag, os.Getenv("CARREL_CONFIG")); file != "" {
		return file, true
	}
	return config.DefaultFile(os.Geteuid(), os.Getenv), false
}

// load reads the file and the variables, after the command line was parsed.
func (s *sources) load() (err error) {
	file, named := configFile(s.file)
	s.origins, err = s.cfg.Load(s.settings, file, named, os.Getenv)
	return err
}

// configCommands are the commands about the daemon's settings.
type configCommands struct{ *app }

// configCommand is "carrel config".
func (a configCommands) configCommand() *cobra.Command {
	src := newSources()
	c := &cobra.Command{
		Use:   "config [flags]",
		Short: "Show the daemon's settings, and where each comes from",
		Long: `Shows what a daemon that is started here and now is told: each setting, its value,
and where that comes from. It takes the flags of carrel serve. Below the table it
says what is wrong with the settings, if anything is.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := src.load(); err != nil {
				return err
			}
			if err := a.printConfig(src); err != nil {
				return err
			}
			return src.origins.Explain(finishConfig(&src.cfg))
		},
	}
	c.Flags().AddFlagSet(src.flags)
	return c
}

// settingRow is a setting in JSON.
type settingRow struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Source   string `json:"source"`          // built-in, file, environment or flag
	Where    string `json:"where,omitempty"` // FILE:LINE, the variable, or the flag
	Variable string `json:"variable"`        // what it can be set by
	About    string `json:"about"`
}

// printConfig writes the settings, sorted by name.
func (a configCommands) printConfig(src *sources) error {
	rows := []settingRow{}
	for _, name := range src.origins.Names() {
		f, origin := src.settings.Lookup(name), src.origins[name]
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		rows = append(rows, settingRow{name, value, origin.Kind, origin.Where, config.Variable(name), f.Usage})
	}
	if a.json {
		file, _ := configFile(src.file)
		return a.printJSON(map[string]any{"file": file, "settings": rows})
	}
	cells := make([][]string, 0, len(rows))
	for _, r := range rows {
		cells = append(cells, []string{r.Key, first(r.Value, "–"), first(r.Where, r.Source)})
	}
	return a.table([]string{"KEY", "VALUE", "FROM"}, cells)
}

// fileDataDir returns the data directory in the configuration file, so that clients on the daemon's
// machine find it; "" without one. If this user can't read the file, it is only for the daemon.
func fileDataDir() string {
	src := newSources()
	file, named := configFile("")
	only := func(string) string { return "" }
	origins, err := src.cfg.Load(src.settings, file, named, only)
	if err != nil || origins["data-dir"].Kind != config.File {
		return ""
	}
	return src.cfg.DataDir
}
