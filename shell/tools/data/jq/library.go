package jq

import (
	"fmt"
	"strings"
	"sync"

	"github.com/itchyny/gojq"
)

// kinds are the builtins that pass on only values of some kind, with their conditions.
var kinds = map[string]string{
	"values":    `. != null`,
	"nulls":     `. == null`,
	"booleans":  `type == "boolean"`,
	"numbers":   `type == "number"`,
	"strings":   `type == "string"`,
	"arrays":    `type == "array"`,
	"objects":   `type == "object"`,
	"iterables": `type | . == "array" or . == "object"`,
	"scalars":   `type | . != "array" and . != "object"`,
	"finites":   `isinfinite | not`,
	"normals":   `isnormal`,
}

// source has the builtins that are easiest to write in jq. Names that begin with _ are internal.
const source = `
def map_values(f): .[] |= f;
def with_entries(f): to_entries | map(f) | from_entries;
def recurse_down: recurse;
def repeat(f): . as $input | range(infinite) | $input | f;
def walk(f):
  def inside_out: (if type == "object" then .[] |= inside_out elif type == "array" then [.[] | inside_out] else . end) | f;
  inside_out;

def first: .[0];
def last: .[-1];
def nth($n): .[$n];
def nth($n; f): if $n >= 0 then first(skip($n; f)) else error("nth doesn't support negative indices") end;
def add(f): reduce f as $each (null; . + $each);
def in(xs): . as $key | xs | has($key);
def inside(xs): . as $part | xs | contains($part);
def isfinite: if type == "number" then isinfinite | not else false end;
def isvalid(f): try (f | true) catch false;
def error(msg): msg | error;
def halt_error: halt_error(5);
def env: $ENV;
def have_literal_numbers: true;
def have_decnum: false;

def paths: path(..) | if . == [] then empty else . end;
def paths(node_filter): path(.. | select(node_filter)) | if . == [] then empty else . end;
def leaf_paths: paths(scalars);
def pick(pathexps): . as $whole | reduce path(pathexps) as $at (null; setpath($at; $whole | getpath($at)));

def _pattern($val):
  ($val | type) as $type
  | if $type == "string" then [$val, null]
    elif $type == "array" and $val != [] then [$val[0], $val[1]]
    else error($type + " not a string or array") end;
def match(re; mode): _match(re; mode)[];
def match($val): _pattern($val) as [$re, $mode] | _match($re; $mode)[];
def test(re; mode): _test(re; mode);
def test($val): _pattern($val) as [$re, $mode] | _test($re; $mode);
def _named: reduce (.captures[] | select(.name != null)) as $group ({}; .[$group.name] = $group.string);
def capture(re; mods): match(re; mods) | _named;
def capture($val): match($val) | _named;
def scan($re; $flags): match($re; "g" + $flags) | if .captures == [] then .string else [.captures[].string] end;
def scan($re): scan($re; null);
def split($re; flags):
  . as $text
  | [[null, 0], (match($re; "g" + flags) | [.offset, .offset + .length]), [null, null]]
  | [range(1; length) as $i | $text[.[$i - 1][1]:.[$i][0]]];
def splits($re; flags): split($re; flags)[];
def splits($re): splits($re; null);

def todateiso8601: strftime("%Y-%m-%dT%H:%M:%SZ");
def fromdateiso8601: strptime("%Y-%m-%dT%H:%M:%SZ") | mktime;
def todate: todateiso8601;
def fromdate: fromdateiso8601;
def date: todateiso8601;
def dateadd(u; n): . + n;
def datesub(u; n): . - n;
def dateadd(u): . + u;

def combinations:
  if length == 0 then []
  else (.[:-1] | combinations) as $before | .[-1][] | $before + [.] end;
def combinations(n): . as $choices | [range(n) | $choices] | combinations;

def fromstream(f):
  foreach f as $event (null;
    if .done then null else . end
    | if ($event | length) == 2 then setpath(["made"] + $event[0]; $event[1]) | .done = ($event[0] == [])
      else .done = (($event[0] | length) == 1) end;
    if .done then .made else empty end);
def truncate_stream(stream):
  . as $depth | null | stream | if (.[0] | length) > $depth then .[0] |= .[$depth:] else empty end;

def INDEX(stream; idx_expr): reduce stream as $row ({}; .[$row | idx_expr | tostring] = $row);
def INDEX(idx_expr): INDEX(.[]; idx_expr);
def IN(s): . as $wanted | any(s; . == $wanted);
def IN(src; s): . as $input | any(src; . as $wanted | $input | any(s; . == $wanted));
def JOIN($idx; idx_expr): map([., $idx[idx_expr]]);
def JOIN($idx; stream; idx_expr): stream | [., $idx[idx_expr]];
def JOIN($idx; stream; idx_expr; join_expr): JOIN($idx; stream; idx_expr) | join_expr;
`

// library returns the builtins that are written in jq, by name/arity.
var library = sync.OnceValue(func() map[string]*gojq.FuncDef {
	var text strings.Builder
	for name, condition := range kinds {
		fmt.Fprintf(&text, "def %s: select(%s);\n", name, condition)
	}
	q, err := gojq.Parse(text.String() + source + ".")
	if err != nil {
		panic("jq: the library: " + err.Error())
	}
	out := map[string]*gojq.FuncDef{}
	for _, d := range q.FuncDefs {
		out[fmt.Sprintf("%s/%d", d.Name, len(d.Args))] = d
	}
	return out
})
