"""The few forms in which programs complain, whatever they complain about, and what each form asks for."""

from __future__ import annotations

import re

_TOPIC = r"[`'\"]?[\w./\[\]()=:-](?:(?!\. )[\w ./\[\]()=:'`\"-]){0,80}?"
_VALUE = r"[^;\n]{1,120}?"
_END = r"(?=[.;,](?:\s|$)|\s*$|\s\()"
_CLOSE = r"(?=[.;](?:\s|$)|\s*$|\s\()"
FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"(?:requires?|needs?|must|should|ha(?:s|ve) to)\b[^.\n]{0,60}?\b(?:the )?environment variable [`'\"]?"
            r"(?P<what>[A-Z][A-Z0-9_]{2,60})[`'\"]?(?: to be set| be set)? ?(?:to|=) ?"
            r"[`'\"]?(?P<want>[\w.:/-]{1,60}?)[`'\"]?(?=[.;,]?(?:\s|$))"
        ),
        "Export {what}={want} in the batch script before the program starts",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:requires?|needs?|expects?|wants?) (?P<part>{_TOPIC}) to (?P<whole>(?:be|have|match) "
            rf"{_VALUE})(?:,? (?:but )?(?:got|found|received) (?P<have>{_VALUE}))?{_CLOSE}"
        ),
        "Correct {part}, which {what} wants to {whole}",
    ),
    (
        re.compile(r"Can't locate \S{1,120} in @INC(?: \(you may need to install the (?P<what>[\w:]{1,80}) module\))?"),
        "Install the Perl module {what} for the perl of the job (cpanm, or its package), or put its folder into PERL5LIB",
    ),
    (
        re.compile(r"[Nn]o rule to make target [`'](?P<what>[^`']{1,200})', needed by [`'](?P<part>[^`']{1,200})'"),
        "Build or put {what} where make looks for it (its path, the folder that make runs in), for {part} needs it",
    ),
    (
        re.compile(r"packages are not available from current channels: (?:- )?(?P<what>\S{1,80})"),
        "Take a version of {what} that the channels have (conda search), or name the channel that has it (-c "
        "conda-forge, -c bioconda)",
    ),
    (
        re.compile(
            r"(?P<part>password authentication failed|[Aa]ccess denied|[Aa]uthentication failed) for (?:user "
            r")?['\"](?P<what>[^'\"]{1,80})"
        ),
        "Give the job the right password or key of {what} (a file such as ~/.pgpass that the node sees, a "
        "variable), or have its rights set",
    ),
    (
        re.compile(r"(?P<what>[^\s:]{1,200}): (?:cannot execute binary file|[Ee]xec format error)"),
        "Build or take {what} for the processor of the node (file {what}, uname -m), for it is of another kind, "
        "or no whole program",
    ),
    (
        re.compile(rf"[Mm]issing (?:input )?file(?: for (?:the )?[\w ()-]{{2,80}}?)?: {{0,4}}(?P<want>[^\s:;,]{{1,200}}){_END}"),
        "Put {want} where it is looked for, or correct its name",
    ),
    (
        re.compile(
            r"(?:[Cc]annot|[Cc]an't|[Cc]ould not|[Uu]nable to) (?:find|locate)(?: the)? (?:[\w-]{2,30} )?file:? {1,4}['\"]?"
            r"(?P<want>[^\s:;,'\"/]{1,200})['\"]?(?=[.;,]?(?:\s|$))"
        ),
        "Start it in the folder that holds {want}, or name that file by its path: it is looked for where it was started",
    ),
    (
        re.compile(
            r"(?P<old>[`'\"]?[\w.\[\]=-]{2,60}(?:\(\))?[`'\"]?) (?:is|was|has been|are|were) (?:now )?(?:deprecated|removed|"
            r"renamed|replaced"
            r"|no longer (?:supported|available|used)).{0,120}?(?:[Uu]se|in favou?r of|to|by|with) "
            r"(?P<new>[`'\"]?[\w.\[\]=()-]{2,80}"
            r"[`'\"]?)(?: instead)?"
        ),
        "Replace {old} by {new}",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:only (?:supports?|works?(?: with| on)?|accepts?|runs? on)|can only be used (?:with|on|for|in)"
            rf"|(?:is|are) only (?:supported|available|implemented) (?:with|on|for|in|by)) (?P<want>{_VALUE}){_CLOSE}"
        ),
        "{what} goes only with {want}: provide that, or leave {what} out",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:cannot|can't|can not|must not|may not) be (?:used|combined|set|enabled|passed|specified)"
            rf"(?: together| at the same time)? (?:with|and|when|if) (?P<part>{_VALUE}){_END}"
            rf"|[Cc](?:annot|an't|an not) (?:use|combine|set|specify|pass|have) (?:both )?(?P<first>{_TOPIC}) (?:with|and|"
            rf"together with|when) (?P<second>{_VALUE}){_END}"
        ),
        "Leave one of the two out, for they do not go together: {pair}",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:does not|doesn't|do not|don't) (?:yet |currently )?(?:support|accept|allow) "
            rf"(?P<part>{_VALUE}){_END}"
        ),
        "Leave {part} out, or take another than {what}, which does not take it",
    ),
    (
        re.compile(
            rf"(?P<part>{_TOPIC}) (?:is|are) not (?:yet )?(?:supported|implemented|available) (?:for|by|on|in|with) "
            rf"(?P<have>[A-Za-z][\w-]{{1,30}}) (?:below|before|older than) (?:version )?(?P<want>\d[\w.]{{0,12}}?){_END}"
        ),
        "Run it where there is a newer {have}, {want} at least, or without what uses {part}",
    ),
    (
        re.compile(
            rf"(?P<part>{_TOPIC}) (?:is|are) (?:not|un)(?: yet| currently)? ?(?:supported|implemented|allowed)"
            rf"(?: (?:for|by|with|on|in|when) (?P<what>{_VALUE}))?{_END}"
        ),
        "Leave {part} out, or choose another: it is not supported",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:must not|mustn't|should not|shouldn't|cannot|can't) be "
            rf"(?:bigger|larger|greater|more|higher|longer) than (?P<want>{_VALUE})"
            rf"(?:,? (?:but )?(?:got|found|received|is|was) (?P<have>{_VALUE}))?{_CLOSE}"
        ),
        "Bring {what} to at most {want}",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}(?: \([^()\n]{{1,60}}\))?) exceeds? (?:the |its |your )?(?:maximum |allowed )?"
            rf"(?:limit|maximum|quota|bound)(?: of)?:? (?P<want>{_VALUE}){_CLOSE}"
        ),
        "Bring {what} to at most {want}, or raise that limit where it is set",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:must|should|has to|have to|needs to) (?:either )?"
            rf"(?P<verb>be|have|contain|match) (?P<want>{_VALUE})"
            rf"(?:(?:,? (?:but )?(?:got|found|received|given)|,? but (?:is|was)|, not)(?: value)?:? (?P<have>{_VALUE}))?{_CLOSE}"
        ),
        "Correct {what}: it has to be {want}",
    ),
    (
        re.compile(
            rf"[Ee]xpected (?!to\b)(?P<what>{_VALUE}),? (?:but )?(?:got|found|received|was|is)(?: an?| instead)?:? "
            rf"(?P<have>{_VALUE}){_END}"
        ),
        "Bring both sides to one: expected is {what}",
    ),
    (
        re.compile(
            r"(?:[Uu]nknown|[Ii]nvalid|[Uu]nsupported|[Uu]nrecognized|[Uu]nexpected) (?P<kind>[\w -]{2,40}?):? "
            r"?[`'\"](?P<have>[^`'\"]{1,80})[`'\"]"
            r".{0,40}?(?:one of|[Cc]hoose from|[Aa]vailable|[Ss]upported|[Vv]alid|[Kk]nown|[Aa]llowed)(?: (?:options|values|"
            r"names|choices|\w+s))?"
            rf"(?: are)?[:= ]{{1,2}}(?P<want>[^;\n]{{1,500}}?){_CLOSE}"
        ),
        "Set the {kind} to one of {want}",
    ),
    (
        re.compile(
            r"[Ii]nvalid (?P<what>[\w -]{0,30}?(?:dir(?:ectory)?|path|folder|file(?:name)?|checkpoint)): ?"
            r"['\"]?(?P<part>[/~.][^\s'\"]{1,240})"
        ),
        "Put what is read there into {part}, or correct {what}",
    ),
    (
        re.compile(rf"(?P<want>{_TOPIC}) (?:is|are) (?:required|needed) to (?P<what>{_VALUE}){_END}"),
        "Provide {want}, which is needed to {what}",
    ),
    (
        re.compile(rf"(?P<want>{_TOPIC}) (?:(?:is|are) )?(?:required|needed) (?:for|by|to) (?P<what>{_VALUE}){_END}"),
        "Provide {want}, or leave out {what}",
    ),
    (
        re.compile(
            r"[Nn]o (?P<part>[\w .-]{2,60}?) (?:(?:were |was |are |is )?(?:present|found|exists?)) (?:in|under|at|within) "
            r"(?:the |this )?(?:director(?:y|ies)|folder|path|file)?:? ?['\"`]?(?P<what>[/~.\w][^\s'\"`]{1,200})['\"`]?"
        ),
        "{what} holds no {part}: run first what makes them, or give the folder that has them",
    ),
    (
        re.compile(rf"(?:\b[Uu]sing (?:of )?|\b[Tt]he use of )?(?P<what>{_TOPIC}) (?:requires?|needs?) (?P<want>{_VALUE}){_END}"),
        "{what} requires {want}: provide it, or do without {what}",
    ),
    (
        re.compile(rf"(?P<what>{_TOPIC}) (?:appears path-like, but )?does(?:n't| not) exist[!.]?{_END}"),
        "{what} does not exist: correct the name where it is given, or make it",
    ),
    (
        re.compile(rf"(?P<what>{_TOPIC}) already exists?{_END}"),
        "Remove or rename {what}, or tell the program to go on with it; see first what it holds",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:is|are|was|were|has|have) not (?:been )?(?P<state>set|specified|provided|given|"
            rf"configured|initialized){_END}"
        ),
        "Provide {what}: it is not {state}",
    ),
    (
        re.compile(
            rf"(?P<what>{_TOPIC}) (?:is|are|was|were) not (?:found|present|available|contained|listed) (?:in|among|on) "
            rf"(?P<part>{_VALUE}){_END}"
            rf"|(?P<first>{_TOPIC}) not (?:found|present) in (?P<second>{_VALUE}){_END}"
        ),
        "Correct the name, or add it where it is looked for: {pair}",
    ),
    (
        re.compile(
            r"\bin [`']?\[(?:\.data\.frame|\.data\.table|\[)?[`']?\((?P<what>[\w.$]{1,60}),.{0,200}undefined columns selected"
        ),
        "Correct the names of the columns that are taken of {what}: names({what}) shows those that it has",
    ),
    (
        re.compile(
            rf"(?P<what>(?:[Aa]tom ?type|[Kk]eyword|[Pp]arameter|[Vv]ariable|[Oo]ption|[Ff]ile|[Rr]esidue"
            rf"|[Ee]ntry|[Ff]ield|[Cc]olumn"
            rf"|[Mm]odule|[Ss]ymbol|[Ff]unction|[Cc]ommand) {_TOPIC}) (?:is |was |could )?not (?:be )?(?:found"
            rf"|defined|recognized|known){_END}"
        ),
        "Correct {what} where it is given, or add it where it is looked for: it is not there",
    ),
)
"""Forms of complaints, with what each asks for; the first that fits counts. `pair` is the two that the complaint names."""
