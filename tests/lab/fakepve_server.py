"""Runs PyPI's fakepve for the lab, from a description on stdin, until stdin closes.

The first line of stdin is a JSON object:
  host, port (0: a free one), cert, key (PEM files), password of root@pam, time_scale,
  clone_secs and start_secs (PVE seconds), tokens {"user@realm!id": secret}, nodes [name],
  storages {id: {type, content, shared}}, grants [[user, path, [privilege]]],
  guests [{vmid, name, node, kind: qemu|lxc, template, status, config}]
Once it listens it prints {"port": N}. Nothing is kept when it ends.

fakepve leaves some of a VM's life out; what qemu-server does there is added below: disks that a config
change allocates or detaches, PUT .../resize, the normal form of netN and tags, masked passwords, and a
clone that has no name before its disks are there.
"""

import asyncio
import json
import re
import sys
import urllib.parse

from aiohttp import web
from fakepve import FakePve
from fakepve.lxc import format_size, parse_size
from fakepve.model import PveError, TaskError
from fakepve.qemu import DRIVE_KEY, drives_of, is_cdrom, join_drive, split_drive, volume_ref, with_mac
from fakepve.server import ok

# What PVE answers as a number, whatever it was sent as.
INTEGERS = ('balloon', 'cores', 'cpuunits', 'numa', 'onboot', 'protection', 'shares', 'sockets', 'vcpus')
RESIZE = re.compile(r'^(\+?)(\d+(?:\.\d+)?[KMGT]?)$')
SSH_KEY = re.compile(r'^(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/]+=*( .*)?$')


def normal_tags(text):
    """Tags as PVE stores them: each once, sorted, joined by a semicolon."""
    return ';'.join(sorted({tag.lower() for tag in re.split(r'[;,\s]+', text) if tag}))


def check_ssh_keys(text):
    for line in urllib.parse.unquote(text).strip().splitlines():
        if line.strip() and not SSH_KEY.match(line.strip()):
            raise PveError(500, 'SSH public key validation error')


class LabPve(FakePve):
    """fakepve with the parts of a VM's life that the lab's clients need."""

    clone_secs = 0

    def _routes_lab(self):
        return [('PUT', '/nodes/{node}/qemu/{vmid}/resize', self._resize)]

    # ------------------------------------------------------------------ a clone in the making

    async def ceph_io(self, vm, keys=None):
        # The last thing a clone waits for before it drops its lock.
        if vm.lock == 'clone':
            await self.pause(self.clone_secs)
            self._own_cloudinit(vm)
        await super().ceph_io(vm, keys)

    def _own_cloudinit(self, vm):
        """PVE gives a clone its own cloud-init drive; fakepve leaves the template's in place."""
        for key, volume, props in drives_of(vm.config):
            found = re.fullmatch(r'([^:]+):(.*/)?vm-\d+-cloudinit(\.\w+)?', volume)
            if found:
                volid = '{0}:{1}vm-{2}-cloudinit{3}'.format(found[1], found[2] or '', vm.vmid, found[3] or '')
                vm.config[key] = join_drive(volid, props)

    def _vm_status(self, vm, listing=False):
        status = super()._vm_status(vm, listing)
        if vm.lock == 'clone':
            status['name'] = 'VM {0}'.format(vm.vmid)
        return status

    async def _resources(self, request):
        answer = json.loads((await super()._resources(request)).text)
        for row in answer['data']:
            if row.get('lock') == 'clone':
                row.pop('name', None)
                row['status'] = 'unknown'
        return web.json_response(answer)

    async def _config_get(self, request):
        vm = self._vm(request, 'VM.Audit')
        if vm.lock == 'clone':
            return ok({'lock': 'clone', 'digest': vm.digest()})
        answer = json.loads((await super()._config_get(request)).text)
        if 'cipassword' in answer['data']:
            answer['data']['cipassword'] = '**********'
        return web.json_response(answer)

    # ------------------------------------------------------------------ config

    async def _apply_config(self, vm, user, p):
        if p.get('digest') and p['digest'] != vm.digest():
            raise PveError(500, 'checksum mismatch (file change by other user?)')
        self._check_lock(vm)
        if not [key for key in p if key not in ('digest', 'skiplock')]:
            raise PveError(500, 'no options specified')
        changes = {key: int(value) if key in INTEGERS else value for key, value in p.items()}
        if changes.get('sshkeys'):
            check_ssh_keys(changes['sshkeys'])
        if changes.get('tags'):
            changes['tags'] = normal_tags(changes['tags'])
        if changes.get('description'):
            changes['description'] = changes['description'].rstrip()
        for key in [key for key in changes if re.fullmatch(r'net\d+', key)]:
            changes[key] = with_mac(changes[key])
        for key in [key for key in changes if DRIVE_KEY.match(key)]:
            self._qm_check_drive(user, vm.vmid, None, key, changes[key], None)
            changes[key] = self._qm_new_drive(vm.vmid, key, changes[key], None)[0]
        detached = self._detached(vm, changes)
        await super()._apply_config(vm, user, changes)
        for volume in detached:
            vm.config[self._free_unused(vm)] = volume

    @staticmethod
    def _detached(vm, changes):
        """Volumes that lose their slot: PVE keeps them as unusedN."""
        gone = [key for key in str(changes.get('delete') or '').split(',') if DRIVE_KEY.match(key)]
        out = []
        for key, volume, props in drives_of(vm.config):
            new = split_drive(changes[key])[0] if key in changes else None
            moved = new is not None and new != volume
            if (moved or key in gone) and not is_cdrom(volume, props) and volume_ref(volume)[0]:
                out.append(volume)
        return out

    @staticmethod
    def _free_unused(vm):
        return next(key for key in map('unused{0}'.format, range(256)) if key not in vm.config)

    async def _resize(self, v, user):
        vm = self.find(v['node'], v['vmid'])
        disk, wanted = v['disk'], RESIZE.match(str(v['size']))
        self.require(user, '/vms/{0}'.format(vm.vmid), 'VM.Config.Disk')
        if v.get('digest') and v['digest'] != vm.digest():
            raise PveError(500, 'checksum mismatch (file change by other user?)')

        async def body():
            if vm.lock:
                raise TaskError('VM is locked ({0})'.format(vm.lock))
            if disk not in vm.config:
                raise TaskError("disk '{0}' does not exist".format(disk))
            volume, props = split_drive(vm.config[disk])
            if is_cdrom(volume, props):
                raise TaskError("you can't resize a cdrom")
            stored = self._qm_volume(volume) or {}
            old = int(stored.get('size') or parse_size(props.get('size', '0')))
            size = parse_size(wanted.group(2)) + (old if wanted.group(1) else 0)
            if size < old:
                raise TaskError('shrinking disks is not supported')
            stored['size'] = size
            vm.config[disk] = join_drive(volume, dict(props, size=format_size(size)))
        return await self.task(vm.node, 'resize', vm.vmid, user, body, vm=vm)


def add_volumes(pve, vmid, config):
    """Gives the volumes that a config names a place on their storages, so that they have a real size."""
    for _key, volume, props in drives_of(config):
        sid, name = volume_ref(volume)
        if sid in pve.storages and not volume.endswith(':cloudinit'):
            pve.storages[sid].setdefault('volumes', {})[name] = {
                'content': 'images', 'format': 'raw', 'vmid': vmid, 'ctime': 0,
                'size': parse_size(props.get('size', '4M'))}


def build(spec):
    pve = LabPve(password=spec['password'], host=spec['host'], port=spec['port'])
    pve.time_scale = spec['time_scale']
    pve.clone_secs = spec['clone_secs']
    pve.apitokens.update(spec['tokens'])
    if spec['nodes']:
        pve.nodes = {name: {'online': True} for name in spec['nodes']}
    for sid, store in spec['storages'].items():
        pve.storages[sid] = dict({'active': 1, 'files': set()}, **store)
    for guest in spec['guests']:
        place = {'node': guest['node'], 'status': guest['status'], 'config': guest['config'],
                 'template': guest['template']}
        if guest['kind'] == 'lxc':
            pve.add_ct(guest['vmid'], guest['name'], **place)
            continue
        pve.add_vm(guest['vmid'], guest['name'], **place)
        add_volumes(pve, guest['vmid'], guest['config'])
    for user, path, privileges in spec['grants']:
        pve.grant(user, path, *privileges)
    return pve


def slow_starts(pve, secs):
    """Every VM, also one cloned later, takes this long to start."""
    plain_start = pve._do_start

    async def start(vm, user, p):
        vm.start_secs = secs
        return await plain_start(vm, user, p)
    pve._do_start = start


async def serve():
    loop = asyncio.get_running_loop()
    spec = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    pve = build(spec)
    slow_starts(pve, spec['start_secs'])
    await pve.start(spec['cert'], spec['key'])
    print(json.dumps({'port': pve.port}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    await pve.stop()


if __name__ == '__main__':
    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        pass
