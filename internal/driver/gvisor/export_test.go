package gvisor

import "time"

// BeginBlanks makes the driver start its blank sentries now, as Sweep does.
func (d *Driver) BeginBlanks() { d.blanks.begin() }

// SpawnerMayStart forgets the time of the last spawner's start, so that the next may start at once.
func (d *Driver) SpawnerMayStart() {
	d.spawner.mu.Lock()
	defer d.spawner.mu.Unlock()
	d.spawner.next = time.Time{}
}
