# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one action plugin of the collection: meta/runtime.yml routes every module here."""

from __future__ import annotations

from ansible_collections.homelab.anvil.plugins.plugin_utils.transport import BundleAction


class ActionModule(BundleAction):
    """Runs the module of the task out of the bundle that is kept on the target."""
