package data

import (
	"fmt"
	"io"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"

	"github.com/carrel-dev/carrel/shell/tool"
)

const htmlHelp = `Usage: html-to-markdown [OPTION]... [FILE]...
Convert HTML, of FILEs or standard input, to Markdown on standard output.

  -b, --bullet=CHAR          bullet of lists: -, + or * (default -)
  -c, --code=FENCE           fence of code blocks: ` + "```" + ` or ~~~
  -r, --hr=STRING            horizontal rule (default ---)
      --heading-style=STYLE  atx (# Heading, the default) or setext
  -d, --domain=URL           make links whole with this address
      --help                 show this help
`

const maxHTML = 16 << 20

// runHTML is html-to-markdown.
func runHTML(c *tool.Call) int {
	f, ok := c.Flags("b:c:r:d:h", "bullet=b", "code=c", "hr=r", "domain=d", "heading-style=\x80:", "help=h", "version=\x81")
	if !ok {
		return 1
	}
	if f.Has('h') || f.Has(0x81) {
		fmt.Fprint(c.Out, htmlHelp)
		return 0
	}
	style := commonmark.HeadingStyleATX
	switch f.Value(0x80, "atx") {
	case "setext":
		style = commonmark.HeadingStyleSetext
	case "atx":
	default:
		return c.Errorf(1, "invalid heading style '%s'", f.Value(0x80, ""))
	}
	conv := converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(), table.NewTablePlugin(), strikethrough.NewStrikethroughPlugin(),
		commonmark.NewCommonmarkPlugin(commonmark.WithBulletListMarker(f.Value('b', "-")), commonmark.WithCodeBlockFence(f.Value('c', "```")),
			commonmark.WithHorizontalRule(f.Value('r', "---")), commonmark.WithHeadingStyle(style), commonmark.WithEmDelimiter("_"))))
	return c.Inputs(f.Args, func(_ string, in io.Reader) error {
		text, err := c.ReadAll(in)
		if err != nil {
			return err
		}
		if len(text) > maxHTML {
			return fmt.Errorf("document too large")
		}
		// The converter's memory is not known in advance: it makes a tree of the document and texts
		// of its parts.
		if err := c.Pay(20 * int64(len(text))); err != nil {
			return err
		}
		if !c.Step(1 + len(text)*2) {
			return tool.ErrStop
		}
		out, err := convertHTML(conv, text, f.Value('d', ""))
		if err != nil {
			return err
		}
		if len(out) > 0 {
			out = append(out, '\n')
		}
		_, err = c.Out.Write(out)
		return err
	})
}

// convertHTML calls the converter. Its panics on odd documents must not end the machine.
func convertHTML(conv *converter.Converter, text []byte, domain string) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("document can't be converted: %v", p)
		}
	}()
	s, err := conv.ConvertString(string(text), converter.WithDomain(domain))
	return []byte(s), err
}
