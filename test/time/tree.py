"""Makes a tree with 100 files in each directory, or measures one:
python3 tree.py make TOP DIRECTORIES, python3 tree.py sum TOP."""
import hashlib
import os
import sys

what, top = sys.argv[1:3]
if what == "make":
    for d in range(int(sys.argv[3])):
        path = os.path.join(top, "d%02d" % d)
        os.makedirs(path)
        for f in range(100):
            name = os.path.join(path, "f%02d é" % f)
            with open(name, "wb") as out:
                out.write(hashlib.sha256(name.encode()).digest() * (f % 40))
            os.chmod(name, 0o600 + (f % 8))
            os.utime(name, ns=(10**18 + f, 10**18 + d * 1000 + f))
        os.symlink("f00 é", os.path.join(path, "link"))
        os.link(os.path.join(path, "f01 é"), os.path.join(path, "hard"))
else:
    total = hashlib.sha256()
    count = 0
    for path, dirs, files in os.walk(top):
        dirs.sort()
        for f in sorted(files):
            name = os.path.join(path, f)
            st = os.lstat(name)
            total.update(repr((name, st.st_mode, st.st_uid, st.st_nlink, st.st_size, st.st_mtime_ns)).encode())
            if os.path.islink(name):
                total.update(os.readlink(name).encode())
            else:
                with open(name, "rb") as src:
                    total.update(src.read())
            count += 1
    print(count, total.hexdigest())
