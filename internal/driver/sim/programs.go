package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

var (
	_ driver.Programmer = (*Driver)(nil)
	_ driver.Programmer = (*Pool)(nil)
)

// programDir is the directory of the files by which the shell finds an owner's programs.
const programDir = "/usr/local/bin/"

// programs are the owners' programs in a driver's sandboxes. They outlive an instance, because a
// pause ends the instance.
type programs struct {
	all map[string]carrel.Program // in every sandbox; fixed

	mu    sync.Mutex
	given map[carrel.ID]map[string]*carrel.Program
	disks map[carrel.ID]*vfs.FS // of the instances that live
}

func newPrograms(all []carrel.Program) *programs {
	p := &programs{all: map[string]carrel.Program{}, given: map[carrel.ID]map[string]*carrel.Program{}, disks: map[carrel.ID]*vfs.FS{}}
	for _, one := range all {
		p.all[one.Name] = one
	}
	return p
}

// attach writes the programs' files to the disk of a new instance. If the sandbox's own files fill
// the disk, the programs' files are left out.
func (p *programs) attach(id carrel.ID, disk *vfs.FS) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disks[id] = disk
	for name := range p.all {
		_ = stub(disk, name)
	}
	for name := range p.given[id] {
		_ = stub(disk, name)
	}
}

// detach forgets an instance's disk, unless the sandbox has a newer instance.
func (p *programs) detach(id carrel.ID, disk *vfs.FS) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disks[id] == disk {
		delete(p.disks, id)
	}
}

// stub writes the file that stands for a program.
func stub(disk *vfs.FS, name string) error {
	return disk.Root().WriteFile(programDir+name, stubText(name), 0o755)
}

// mark precedes the names of an owner's programs in their files. So an owner's git differs from the
// machine's git.
const mark = "/"

func stubText(name string) []byte { return interp.Stub(mark + name) }

// find returns a sandbox's program.
func (p *programs) find(id carrel.ID, name string) *carrel.Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.given[id][name]; one != nil {
		return one
	}
	if one, ok := p.all[name]; ok {
		return &one
	}
	return nil
}

// Provide implements driver.Programmer.
func (d *Driver) Provide(id carrel.ID, list []carrel.Program) (func(), error) {
	if err := d.programs.add(id, list); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { d.programs.remove(id, list) }), nil
}

// add gives a sandbox programs. It adds all of them, or none and returns an error.
func (p *programs) add(id carrel.ID, list []carrel.Program) error {
	const op = "provide programs"
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.given[id]
	if len(have)+len(list) > carrel.MaxPrograms {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, ID: id, Err: fmt.Errorf("at most %d programs may be", carrel.MaxPrograms)}
	}
	for _, one := range list {
		if _, all := p.all[one.Name]; all || have[one.Name] != nil {
			return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Field: "programs", Err: fmt.Errorf("it has a program %s already", one.Name)}
		}
	}
	disk := p.disks[id]
	if have == nil {
		have = map[string]*carrel.Program{}
		p.given[id] = have
	}
	for _, one := range list {
		have[one.Name] = &one
		if disk != nil {
			if err := stub(disk, one.Name); err != nil {
				p.take(id, list)
				return &carrel.Error{Op: op, Kind: carrel.Exhausted, ID: id, Err: err}
			}
		}
	}
	return nil
}

// remove takes programs away.
func (p *programs) remove(id carrel.ID, list []carrel.Program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(id, list)
}

// names lists a sandbox's own programs.
func (p *programs) names(id carrel.ID) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.given[id]))
}

// take removes programs. The caller holds p.mu.
func (p *programs) take(id carrel.ID, list []carrel.Program) {
	disk := p.disks[id]
	for _, one := range list {
		delete(p.given[id], one.Name)
		if disk == nil {
			continue
		}
		v := disk.Root()
		if b, err := v.ReadFile(programDir + one.Name); err == nil && slices.Equal(b, stubText(one.Name)) {
			_ = v.Remove(programDir + one.Name) // it was there
		}
	}
	if len(p.given[id]) == 0 {
		delete(p.given, id)
	}
}

// lookup is interp.Config.Lookup of one instance. A file may lead to no program: its provider has
// gone, or the file came with the files of another sandbox.
func (i *instance) lookup(name string) tool.Command {
	name, own := strings.CutPrefix(name, mark)
	if !own {
		return nil // from a build with more programs
	}
	p := i.programs.find(i.id, name)
	if p == nil {
		return func(c *tool.Call) int {
			return c.Errorf(127, "nobody provides this program to this sandbox")
		}
	}
	return programCommand(i.id, p)
}
