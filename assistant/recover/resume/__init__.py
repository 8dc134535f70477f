"""How the script of a job goes on from a checkpoint after a restart: proven by reading, or proposed to a trial start.

`script` gives the answer, as `means` with its words and values. It asks `framework_rules` by way of `installed_trainers`, then
what the script can be given: `argument`, `number`, `variable` (`script_variable` reads the script with one set), `config`,
`joint_settings`; what the owner wrote (`documented`, `script_arguments`, `shown_variables`), and what names a run anew at each
start (`pinned_folder`). `stages` are scripts that train several times. `plan` says what a restart needs first, `lookups` which
checkpoint a path means.
"""
