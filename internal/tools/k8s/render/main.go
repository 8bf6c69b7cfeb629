// Command render writes what a Helm chart makes of its values, as "helm template" would.
//
//	render -namespace NAMESPACE -release NAME [-values FILE]... CHART
//
// It asks no cluster and no repository. Objects come in the order of the files' names.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// valueFiles are the files of a flag that may come several times. A later file wins.
type valueFiles []string

func (files *valueFiles) String() string { return strings.Join(*files, ",") }

func (files *valueFiles) Set(name string) error {
	*files = append(*files, name)
	return nil
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	namespace := flags.String("namespace", "default", "where the objects will be")
	release := flags.String("release", "carrel", "the installation's name")
	var files valueFiles
	flags.Var(&files, "values", "a YAML file of values; may be given several times")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("one chart is needed, not %d", flags.NArg())
	}
	chart, err := loader.Load(flags.Arg(0))
	if err != nil {
		return err
	}
	values := chartutil.Values{}
	for _, name := range files {
		more, err := chartutil.ReadValuesFile(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		values = chartutil.MergeTables(more, values)
	}
	options := chartutil.ReleaseOptions{
		Name: *release, Namespace: *namespace, Revision: 1, IsInstall: true,
	}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		// A template that leaves out an object may leave its separator.
		for text := range strings.SplitSeq("\n"+rendered[name]+"\n", "\n---\n") {
			text = strings.TrimSpace(text)
			if text == "" {
				continue
			}
			if _, err := fmt.Fprintf(out, "---\n%s\n", text); err != nil {
				return err
			}
		}
	}
	return nil
}
