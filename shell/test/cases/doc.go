// Package cases is shared by the tests of the simulated machine. It has scripts, their outcomes,
// and the machine that they run in.
//
// A file AREA.cases has scripts below lines "-- name". Text before the first such line is comment.
// A script's first line "# need: jq" names programs of the host. Without these programs there is no
// real outcome to compare with.
//
// A file AREA.want has, for each script, the [Outcome] that bash and GNU's programs gave. Only the
// test that runs those programs writes it. See [Recordings] for its format.
//
// Two lists hold exceptions, one line "area/name: reason" each. known.txt names the scripts whose
// outcome differs here, and why. A name after "~" differs only sometimes, because its output
// depends on the host or on the time; it has no recording. unseeded.txt names the scripts that need
// a machine with a real clock to run as in bash.
package cases
