// Package cases holds what the tests of the simulated machine share: scripts, the outcomes that
// they have, and the machine that they run in.
//
// A file AREA.cases has scripts below lines "-- name". What stands before the first such line is
// comment. A script's first line "# need: jq" names programs of the host; without them there is
// nothing real to compare with.
//
// A file AREA.want beside it has, for each script, the [Outcome] that bash and GNU's programs gave.
// Only the test that runs those programs writes it. See [Recordings] for its format.
//
// Two lists hold exceptions, one line "area/name: reason" each. known.txt names the scripts whose
// outcome differs here, and why. A name after "~" differs only sometimes, because the answer belongs
// to the host or to the moment; it has no recording. unseeded.txt names the scripts that only a
// machine with a real clock can run as bash does.
package cases
