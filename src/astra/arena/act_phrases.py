"""The phrases by which agents propose, offer, ask, refuse and report; all texts are normalised."""

from __future__ import annotations

import re

from astra.arena.claims import stems


def _any(*ways: str) -> re.Pattern[str]:
    """A pattern of one way or another to say something, each as words of their own."""
    return re.compile(rf"\b(?:{'|'.join(ways)})(?!\w)", re.S)


UNSPOKEN = (
    re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S | re.I),
    re.compile(r"<tool_?call>.*?(?:</tool_?call>|\Z)", re.S | re.I),
    re.compile(r"```.*?(?:```|\Z)", re.S),
    re.compile(r"^[ \t]*[{\[][^\n]*[}\]][ \t]*$", re.M),
    re.compile(r"^[ \t]*\w+[ \t]*\(?\{.*", re.S | re.M),
    re.compile(r"^[ \t]*\w+\([^)\n]*(?:\)|$)", re.M),
    re.compile(r"^[ \t]*[{\[][ \t]*[\"'].*", re.S | re.M),
    re.compile(r"^[ \t]*\w+: \"[^\n]*\", \w+: .*", re.S | re.M),
    re.compile(r"<\|[^|>]{0,40}\|>"),
)
"""What is not said to the user: thoughts, calls, code, JSON, marks of a chat template."""
SHORTER = (
    (re.compile("[‘’ʼ]"), "'"),
    (re.compile(r"\be\.\s?g\.", re.I), "for example"),
    (re.compile(r"\bi\.\s?e\.", re.I), "that is"),
    (re.compile(r"^(\s*(?:\*\*)?)\d{1,2}[.)]\s+", re.M), r"- \1"),
)
"""What would be taken for the end of a sentence, and what it is read as."""
CLOSING = _any(
    r"(?:anything|something|any(?:thing)? (?:other|more|further)|what) (?:else|more|further)"
    r"(?!.{0,30}\b(?:know|tell|need from))",
    r"any (?:other|further|more|additional) (?:question|request|assistance|help|concern|issue|"
    r"thing|"
    r"change|matter)s?",
    r"(?:how|what) (?:else |more )?(?:can|may|could|might|would) (?:i|we) (?:help|assist|do for|"
    r"be of)",
    r"let (?:me|us) know if (?:you(?:'d| would)? (?:need|have|like (?:any|to know)|want any|"
    r"require|"
    r"run)|there(?:'s| is)|i can|any\w*)",
    r"(?:have|need|if) (?:you have )?(?:any )?(?:questions|concerns|help|assistance)",
    r"feel free", r"don't hesitate", r"how are you", r"(?:can|may) i (?:help|assist)",
    r"how (?:can|may) i be of", r"is there (?:any ?(?:thing|other)|more)",
)  # fmt: skip
"""What ends a message and asks for nothing."""

# What is going to be changed -----------------------------------------------------------------

_SKIPPED = (
    r"(?:(?:now|then|also|just|please|next|first|again|still|gladly|immediately|going to|"
    r"about to|put in|put through|carry out|go ahead (?:and|"
    r"with)|proceed (?:to|with|by)|start by|begin by|need to|have to|be able to|try to|go on to|"
    r"to|"
    r"and|be|get|the|your|this|that|of|with|right away|hereby|happily|officially) )*"
)
ANNOUNCED = re.compile(
    r"\b(?:(?:i|we)(?: will|'ll| shall|(?: am| are|'m|'re) (?:going to|about to|ready to|now)|"
    r" would(?: like to)?|'d(?: like to)?| plan to| intend to|"
    r"(?: am| are|'m|'re)(?= (?:\w+ly |now |also |just |then |gladly |in the process of "
    r")*(?:\w+ing\b|happy to|glad to)))|"
    r"(?:i|we)(?: would|'d| am|'m| will|'ll)? (?:suggest|recommend|propos|advis|plan|intend|aim|"
    r"mean)"
    r"(?:e|ing)?(?: that)?(?: we| i| you)?(?: to| on)?|"
    r"my (?:\w+ )?(?:suggestion|proposal|plan|recommendation|advice|intention|next step) (?:is|"
    r"would be)"
    r"(?: that)?(?: we| i)?|"
    r"(?:how|what) about(?: i| we| me)?|why (?:don't|not)(?: i| we)?|time to|all that's left is|"
    r"(?:i|we)(?:'m| am|'re| are)? (?:starting|beginning|continuing|moving on|going on|start|"
    r"begin)"
    r" (?:with|by|to)|"
    r"(?:is|are|'s) (?:about|going|due|set|scheduled|ready) to be|(?:is|are) to be|"
    r"(?<!n't )(?<!not )let (?:me|us)|"
    r"(?:allow|permit) (?:me|us) to|"
    r"let's|(?<!not )(?<!n't )going to|(?:i|we)(?: must| have to| need to)(?= (?:now|then|"
    r"first) )) "
    rf"{_SKIPPED}([a-z]+)"
)
"""I am going to do it; the group is the verb."""
IMPENDING = (
    re.compile(r"\bwill (?:now |then |also |therefore )?be (?!charged|refunded|credited)([a-z]+)"),
    re.compile(
        r"^(?:(?:now|ok|okay|great|alright|all right|sure|perfect|thanks|thank you),? |"
        r"(?:[^\W\d]+ ){0,2}[^\W\d]+[,:] )?(?:i'm )?"
        r"(?:now |proceeding (?:to|with) (?:the )?)?([a-z]+ing)\b"
        r"(?!.*\b(?:is|are|was|were|isn't|aren't|requires?|needs?|means?|will|would|can|could|"
        r"may|"
        r"has|have|costs?|can't|cannot|not)\b)"
    ),
)
"""It will be done, and doing it now; the group is the verb."""
MAY_I = re.compile(
    r"\b(?:(?:shall|should|may|can|could|might|must) (?:i|we)|"
    r"(?:want|like|prefer|need) (?:for )?(?:me|us) to|"
    r"(?:ok|okay|fine|alright|all right|good|happy|sure|certain) (?:with you )?(?:if|that|for "
    r"me to)(?: i)?|(?:ok|"
    r"okay|fine|alright|all right) to|mind if i|"
    r"(?:permission|approval|consent|confirmation|go-ahead) (?:to|for)|"
    r"(?:do|would) you (?:still |really |also )?(?:want|like|wish) to|"
    r"(?:^|that |so,? |confirm:? |, |: )you(?: want|'d like| would like| wish|r request is|"
    r"r intention "
    r"is|'re asking(?: me)?| are asking(?: me)?) to|"
    rf"(?:ready|sure) (?:(?:that )?you want )?to) {_SKIPPED}([a-z]+)"
)
"""May I do it, do you want it done; the group is the verb."""
DO_YOU_AGREE = re.compile(
    r"\b(?:shall|should|may|can) (?:i|we) (?:do (?:that|this|it|so)|go (?:ahead|for it)|"
    r"proceed|continue)\b[^.!]*\?|"
    r"\bdo you (?:agree|consent|authori[sz]e|approve)\b|"
    r"\bdo i have your (?:approval|consent|permission|ok|okay|agreement|confirmation|go-ahead)\b|"
    r"\b(?:ok|okay|happy|alright|fine)(?: with you)?(?: for me)? to (?:proceed|continue|"
    r"go ahead)\b|"
    r"\bwant me to (?:do (?:that|this|it|so)|go ahead|proceed)\b|\bis (?:this|"
    r"that) what you want\b"
)
"""Do you agree: a change is meant, whether it is named or not."""
AGREE = re.compile(
    r"\b(?:is|are|does|do) (?:that|this|it|these|those|everything|all of (?:this|that)|the above|"
    r"the "
    r"details|these details)\b.{0,40}\b(?:correct|right|ok|okay|fine|alright|accurate|work|look|"
    r"sound|good|acceptable|suit)\b|"
    r"\b(?:am i right|is it right|have i (?:got|understood)|did i (?:get|understand)|"
    r"do i understand)\b|"
    r"^(?:just )?to (?:be (?:sure|clear)|confirm|recap|sum up|double-check)\b(?!.*\b(?:which|"
    r"what|"
    r"when|how|why|who|where|e-?mail|postcode|name)\b).*\?|"
    r"\b(?:okay|ok|fine|happy|alright|good|all right) with (?:that|this|it)\b|"
    r"\b(?:shall|should|may) (?:i|we)\W*\?|\bdo you (?:agree|accept|consent|approve|confirm)\b|"
    r"\b(?:proceed|go ahead|continue)\b[^.?!]{0,60}\?|\b(?:correct|right|agreed|okay|ok|"
    r"yes)\W*\?|"
    r"\b(?:reply|respond|answer|say|type|write)\b.{0,20}\byes\b|\byes\W{0,4}(?:/|or)\W{0,4}no\b|"
    r"\b(?:please|kindly|could you|can you|would you|you to|to|you)(?: please| kindly| just)* "
    r"(?:confirm|approve|authori[sz]e)\b|^confirm\b|\bawait(?:ing)? your (?:confirmation|"
    r"approval)|"
    r"\bneed your (?:explicit |final )?(?:confirmation|approval|consent|permission|agreement|"
    r"go-ahead)|\blet me know if (?:that|this|it|you(?:'d| would) like (?:me )?to (?:proceed|go))"
)
"""Do you agree, is that right, shall I: to whatever was said before."""
IF_YOU_LIKE = re.compile(
    r"\bif (?:you(?:'d)? (?:wish|like|want|agree|prefer)|that helps)[^.?!]{0,30}? i (?:can|"
    r"could) ([a-z]+)|"
    r"\bi (?:can|could) ([a-z]+)\b[^.?!]*\bif you(?:'d)? (?:wish|like|want|agree|prefer)\b"
)
"""I could do it if you like; a group is the verb."""
CAN_DO = re.compile(
    r"\b(?:i|we)(?:'m| am|'re| are)? (?:can|could|able to)(?: now| also| then| still| instead)? "
    rf"{_SKIPPED}([a-z]+)"
)
"""What could be done; the group is the verb."""
DO_IT = re.compile(
    r"\blet me (?:just |now |go ahead and )*(?:do|get) (?:it|that|this|so|these|both)\b|"
    r"\b(?:i|we)(?:'ll| will|'d| would|'m going to| am going to| can(?= now))(?: just| go ahead "
    r"and| then| now| gladly)*"
    r" (?:do|get|make|put|push|see|run|have)"
    r" (?:it|that|this|so|them|both|these|those|everything)\b(?! (?:a|if|whether|which|up))"
)
"""I will do it: a change that was named before."""
NEXT = re.compile(
    r"^(?:and |so |ok,? |okay,? )?(?:now|next|on|then)(?: up| step| on)?(?: is| comes?)?(?:,|:)? "
    r"(?:for|to|is|comes?|the)\b(?! (?:me|you|know|be)\b)|"
    r"^next(?: step| up)?: |"
    r"\b(?:extension|cancellation|refund|change|removal|renewal|payment|withdrawal|update|rest)\b"
    r"[^.?!]{0,40} (?:(?:will|would|is going to) (?:follow|happen|go through|take place|be next|"
    r"come next)|comes next|is next|follows)\b"
)
"""What comes next, after what was done."""
UNDER_WAY = re.compile(
    r"\bcoming (?:right |straight )?up\b|"
    r"\b(?:i|we)(?:'m| am|'re| are|'ll| will)(?: now)? (?:going ahead|go ahead with|"
    r"proceed(?:ing)?\b(?! to)|carry(?:ing)? on with)|^proceeding\W*$"
)
CONSENT = frozenset(
    "ok okay alright right correct correctly fine good great ready confirm confirmed confirmation "
    "agree agreed agreement agreeable go goes proceed continue yes yep happy deal objection "
    "objections object mind sound sounds work works suit suits approve approval acceptable accept "
    "accurate cool comfortable consent green permission sure certain want like wish prefer shall "
    "should may done intended fair best content satisfied interested".split()
)
"""Words of questions for agreement."""
FILLING = frozenset(
    "is are was that that's this these those it it's i'm you're you'd everything all with you "
    "your "
    "for me us by i we to the a an any no does do don't would will can could be so then now on "
    "ahead just please still and both them of here above details detail summary plan change "
    "changes as well in order described listed light have got get give given word there if what "
    "how way forward doing making really absolutely quite too instead did understand understood "
    "or not against carry am are look looks through sir madam about one thing things "
    "way version request option idea first again right? next then? need know see".split()
)
"""Words beside those."""
ASSENT = re.compile(
    r"(?<!thanks for )(?<!thank you for )(?<!for giving )\b(?:your|(?:a|the)(?= (?:\w+ )?(?:ok|"
    r"okay|yes|nod|go-ahead|go ahead|green|thumbs|word|say-so))) (?:explicit |final |clear |"
    r"formal |quick |written |prior |short )*"
    r"(?:ok|okay|approval|consent|permission|go-ahead|go ahead|green light|thumbs[- ]up|blessing|"
    r"yes|nod|agreement|authori[sz]ation|confirmation|word|say-so|sign-off|reply|response|"
    r"decision)(?![\w'])"
    r"(?! (?:has|have|was|is|code|e-?mail|number|letter|message)\b)|"
    r"\b(?:say|type|reply|write|answer|respond|send|give)(?: \w+)?(?: with)? [\"'“*`]*(?:yes|y|"
    r"ok|okay|go|"
    r"confirm|proceed|i agree|agreed)\b|\bsay the word\b|"
    r"\b(?:if|as long as|provided|assuming|unless|in case|whether|when|once)(?: that)? "
    r"(?:you(?:'re| are| do|'d| would)?|that|this|it|"
    r"everything|all|there|no one|the (?:above|details|data|plan|summary))(?:'s|'re)?(?: "
    r"\w+){0,4}? "
    r"(?:ok|okay|fine|good|agree|agreed|happy|"
    r"suits?|works?|right|correct|correctly|accurate|mind|object|objections?|disagree|otherwise|"
    r"consent|approve|"
    r"accept|confirm|proceed|go ahead|so|wish|content|in order|comfortable|like (?:that|this|it|"
    r"me to)|want (?:that|this|it|me to))\b|"
    r"\b(?:if so|in that case|pending|subject to|awaiting|let me know (?:if|whether) i (?:may|"
    r"can|should|shall)|correct me if|stop me if|unless you|"
    r"(?:just )?waiting (?:for|on) (?:your|you\b))"
)
"""Asks for agreement, or makes what is to come hang on it, in no question."""
SUITS = re.compile(
    r"\b(?:would|does|do|will|is|are|could)\b.{1,80}\b(?:work|suit|do instead|be (?:ok|okay|"
    r"fine|alright|"
    r"all right|good|acceptable|an? (?:option|alternative))|(?:ok|okay|fine|acceptable|alright) "
    r"(?:for|with|by) you)\b"
)
"""Whether something would do."""
KNOWING = re.compile(
    r"\b(?:do|did|would|can|could) you (?:have|know|remember|recall|happen|see|find|tell|"
    r"provide|give|share|"
    r"specify|check|send|say|let|clarify|explain|describe|name|state|look)\b|\byou(?:'ve| "
    r"have)\b|\b(?:have|had|has) (?:you|it|this|that|"
    r"there|they|the)\b|\b(?:is|are|was|were) there\b|\bdid you (?:already|ever|mean)\b|"
    r"\balready\b|"
    r"\b(?:any(?! objections?\b)|other than)\b|\b(?:are|were) you (?:able|referring|talking|"
    r"asking)\b|"
    r"\b(?:know|hear|see|check|look|learn) (?:about|more|up|if|whether|which|what|how|your|the)\b"
)
"""Asks what the user knows, or how things stand."""
BEFORE = re.compile(
    r"\b(?:before|so that|in order|so) (?:i|we|to)\b[^,?!:—–]*(?:[,?!:—–]|$)|^(?:and |so |ok,? "
    r")?(?:to|for) [^,?!:—–]{1,80}[,:—–]|"
    r"\b(?:reasons?|date|number|day|id|code)\b (?:for|of|to|you)\b[^,?!:—–]*"
)
"""What a question is asked for."""
WOULD_YOU_LIKE = re.compile(
    r"\b(?:would you (?:still |also |really |perhaps )*(?:like|want|care for)|(?:do you "
    r")?(?:still |also |really )*want|need|fancy|"
    r"are you after) (?:an?|the|this|that|it|your|both|all|me|us)\b"
)
CONFIRM_VALUE = re.compile(
    r"\b(?:confirm|verify|double-check)(?: with me)? (?:me )?(?:which|what|when|how|"
    r"whether you have|"
    r"who|your|if you have|the (?!details|change|above|request|following|cancel|exten|renew))"
)
"""What is to be confirmed is a datum."""
IF_WANTED = _any("let me know", "confirm", "just say", "please (?:say|reply)", "tell me if")
WISH = _any(
    r"you(?: want|'d like| would like| wish|'re asking| are asking)(?! to know)", "(?:would|"
    r"will) be",
    "rather than", "instead of",
)  # fmt: skip
"""How a change is named that no verb of a tool names."""
WAITING = _any(
    r"(?:once|after|as soon as|when|if|until) (?:i (?:have|know|receive|get|verify)|you "
    r"(?:have |can |could |'ve )?(?:provide|tell|give(?! (?:me |us )?(?:(?:the|your|a|an) "
    r")*(?:go|ok|appro|cons|nod|green|word|yes|confirm|permission|thumbs))|"
    r"let|share|specify|choose|pick|select|send|"
    r"supply|identify|verify)\w*)",
    r"so (?:that )?(?:i|we) can", r"in order (?:for me )?to", r"before i (?:can|proceed|do|make|"
    r"go)",
)  # fmt: skip
"""What is only going to be done when something else is known."""
NO_CHANGE = _any(
    r"make (?:sure|certain|a note)", r"(?:update|give|place) you", r"open (?:up )?your",
    r"process(?:ing)? (?:that|this|your) (?:query|question)", r"go (?:through|over|back)",
)  # fmt: skip
IDLE = frozenset(
    "access again answer ask assist be check clarify come confirm connect consult do double "
    "explain "
    "fetch find follow gather get give go guide have hear help identify inform inquire keep know "
    "let "
    "like list locate look need note offer provide pull query read recheck retrieve review search "
    "see share show start take tell try understand use verify wait walk want work".split()
)
"""What an agent does that changes nothing."""
_CHANGES = (
    "push bump shift undo put-through hand-out deliver call-off drop rename raise lower reset "
    "clear lift attach "
    "annulment change correction refunding deletion reduction increase switch move upgrade "
    "downgrade add adjust annul apply arrange book call cancel cancelling charge close collect "
    "complete "
    "create "
    "credit decrease delete drop end enrol enroll execute extend file finalise finalize finish "
    "increase initiate issue lengthen log make mark modify move open order pay perform place "
    "postpone proceed process prolong reactivate reassign record reduce refund register reinstate "
    "release remove renew reopen reschedule reserve restore revoke schedule set settle sign "
    "submit "
    "swap switch terminate transfer unlock update change void withdraw "
    "adjustment booking cancellation enrolment extension modification payment prolongation "
    "removal "
    "renewal reservation termination withdrawal"
)
CHANGING = stems(" ".join((_CHANGES, *(f"{one}ing" for one in _CHANGES.split()))))
"""What agents call the changes that tools make, whatever the tools are called."""

# What the user is to pick or tell --------------------------------------------------------------

WH = _any("which|what|when|how|why|who|where|whose")
QUESTION = _any(
    "is|are|was|were|do|does|did|can|could|shall|should|may|might|will|would|have|has|which|what|"
    "when|who|whose|how|where|why"
)
NO_OPTIONS = re.compile(
    r",? or (?:not|no\b|is there|are there|do you (?:have|need\b(?! \d)|want (?:something|"
    r"anything|"
    r"to change|"
    r"me to change|any))|would you (?:like|prefer) (?:something|anything|to (?:change|make|"
    r"adjust|"
    r"wait|keep|leave|stop|hold))|if (?:you|there)|let me know|should i (?:wait|stop|hold|leave)|"
    r"(?:leave|keep) (?:it|things|everything)|anything|something|any other|more|so\b|other)"
)
"""The other half of a question whose answer is yes or no."""
PICK = _any(
    r"the (?:right |correct )?one (?:to|you|that)|(?:one|any) (?:of (?:the following|which|my|"
    r"your)|from)|following|fits?|appl(?:y|ies)|sounds? better|"
    "which|prefer|preference|choose|choice|pick|select|options?|alternatively", "(?:do|"
    "did) you mean",
    "(?:one|either|any) of (?:the|these|those|them)", "what (?:would you like|do you want|do "
    "you say|do you think)",
    "how would you like to (?:proceed|continue)", r"what(?:'s|'ll| shall| will| should| would| "
    r"is) it(?: going to)? be", "your pick", "up to you",
    "your (?:call|choice)", "which (?:one )?(?:suits|works|is better)",
)  # fmt: skip
OR = re.compile(r"\b(?:or|alternatively)\b|\s/\s")
EITHER = re.compile(
    r"\bbetween\b.{1,200}\band\b|"
    r"\b(?:options|possibilities|choices|ways|alternatives)\b.{1,300}\bor\b|"
    r"\beither\b.{1,300}\bor\b|\boption (?:1|a|one)\b.*\boption (?:2|b|two)\b|"
    r"(?<!\w)\(?1[).:] .*(?<!\w)\(?2[).:] |\b(?:i|we|you) (?:can|could)\b[^.?!]{1,200}\bor\b",
    re.S,
)
IS_IT = re.compile(
    r"(?:\w+[, ]+){0,3}?(?:is|are|was|were|has|have|did|does) (?:the|it|this|that|your|there|"
    r"you(?! (?:got|able)))\b"
    r"(?! (?:\w+ )?(?:correct|right|ok|okay|fine|alright|good)\b)"
)
"""Begins a question of how things stand."""
ONE_OR_OTHER = _any(
    r"one\b.*\bor\b.*\bone",
    r"the first\b.*\bor\b",
    "(?:would you|"
    r"you'd) rather",
    "either",
    "(?:do|did) you mean",
    "(?:how|what) about",
    "prefer",
)
GIVE = _any(
    "provide|tell|give|share|send|supply|specify|enter|state", r"what(?:'s| is| are)(?: your)?",
    "(?:have|know|need|with) your", r"by(?: your)?(?! (?:\w+ )?[a-z]*\d)",
)  # fmt: skip
ORDERED = re.compile(
    r"\b(?:please|kindly|could you|can you|would you|will you|i need you to|"
    r"i'd need you to|i ask you to|you to|if you (?:could|can|would))"
    r"(?: please| kindly| also| first| just| either| now)* (?:provide|tell|"
    r"give(?! (?:me|us) (?:a|an|one|just|some) ?(?:moment|minute|second|sec|bit|few|while|time|"
    r"instant))|specify|share|"
    r"let (?:me|us) (?:know|have)|enter|supply|state|confirm|indicate|choose|pick|select|reply|"
    r"respond|send|"
    r"clarify|verify|identify|mention|describe|explain|say|type|name|elaborate|check|advise|"
    r"inform|"
    r"(?:get|come|write) back (?:to (?:me|us) )?with|"
    r"help me (?:with|by|identify|understand)|include|be more specific|repeat|double-check)\b|"
    r"\b(?:just|simply|then|so|and|kindly|please)(?: \w+)? (?:tell me|quote|furnish|remind me|"
    r"let me have|forward me)\b|\byour pick\b|"
    r"\byou (?:haven't|have not|didn't|did not|still have to|forgot to) (?:\w+ )?(?:tell|told|"
    r"say|said|mention\w*|give|given|specif\w+|provide\w*|stated?)\b|"
    r"\b(?:as soon as|once|when|until) (?:i|we) (?:know|hear) (?:which|what|how|when|until|by|"
    r"the|your|why|who)\b|"
    r"\b(?:must|have to|want to|like to|helps?(?:ful)? to|good to|great to|useful to|need to|"
    r"love to|remains to|'d|help me to) (?:know|hear|learn) "
    r"(?:which|what|how|when|until|by|for|your|the|who|why|whether)\b|"
    r"\byou (?:can|may|could) (?:choose|pick|select) (?:between|one|either)\b|\byour (?:choice|"
    r"call)\b|\bup to you\b"
)
NEEDED = re.compile(
    r"\b(?:i|we)(?: will|'ll| would|'d| do| also| still| just| first| only| may)* "
    r"(?:need|require|am missing|are missing|want|like)(?: to)?(?: (?:know|ask|have|first|just|"
    r"also|"
    r"a|an|some|one|few|two|more|bit|of|further|additional|the following|"
    r"following|from you|by|for|on|until|with))* (?:(?:two|three|few|couple of) (?:things|"
    r"details)|"
    r"your|the|which|what|how|when|why|whether|where|who|information|details?|clarification|"
    r"(?:valid )?(?:e-?mail|name|postcode|address|date|number|id|reason)\b|"
    r"from you|for you to|following|you to (?:tell|provide|give|specify|choose|confirm|share|"
    r"pick|"
    r"clarify|verify))|'m missing (?:the|your|a|some)|"
    r"\blet (?:me|us) know (?:(?:by|for|on|until|with) )?(?:which|what|how|when|your|the|who|"
    r"where|whether|why)\b|"
    r"\bmay i (?:have|ask|know|get)\b|\b(?:can|could) i (?:have|get|ask|also get|please have)\b|"
    r"^(?:provide|specify|enter|tell me|give me (?!a (?:moment|second|minute|sec|bit)|one|just)|"
    r"share|(?:choose|select|pick)\b"
    r"(?! (?:all|every|each|any)\b)|confirm (?:your|the|which|"
    r"what|how))\b|\bneed\b[^.?!]{0,40}:$|\b(?:is|are) (?:needed|required|missing)\b(?! to\b)|"
    r"\bi (?:was|am|'m) wondering\b|\bi(?: still| also| just)* need (?:is|are)\b"
)
NONE_NEEDED = re.compile(
    r"\b(?:no|nothing|not)\b(?: \w+){0,3} (?:is|are|be) (?:needed|required|missing)\b|"
    r"\b(?:is|are)(?:n't| not) (?:needed|required|missing)\b"
)
ANY = _any("is there (?:an?|any)", "do you have (?:an?|any)", "are there any")
"""Asks for a datum even where what follows offers to read it."""
PLEASE = re.compile(r"^(?:your|the|just|and|only)\b.*\bplease\W*$")

# What is refused or told -----------------------------------------------------------------------

REFUSED = _any(
    r"(?<!you )(?:can't|cannot|couldn't|mustn't) (?:help|do|make|change|offer|grant|allow|go|take)",
    r"(?:i|we)(?:'m| am|'re| are) (?:declining|refusing|rejecting|denying|forced to)",
    r"only (?:an?|the|our) (?:\w+ ){1,3}(?:can|may|could|is able)",
    r"(?:colleague|librarian|human|specialist|manager|officer|employee|staff|team|supervisor|"
    r"someone)s?(?: else)? (?:has|have|needs?|would have|must|will have)(?: to)? "
    r"(?:approve|decide|do|handle|look|check|see|judge|deal)",
    r"\w*(?:n't| not) (?:foreseen|intended|provided for|planned)",
    r"(?:break|breach|violate|contravene|against|contrary to)s?\b.{0,30}\b(?:rules?|policy|"
    r"policies|terms|regulations?)",
    r"(?:i'll|i will|must|have to) leave .{0,30}\b(?:unchanged|untouched|alone|"
    r"as (?:it is|they are))",
    r"(?:tools?|functions?|rules?|policy|"
    r"policies|toolbox)\b[^.?!]*(?:n't|\bnot|\bno|\bnever)", r"(?:nobody|no one|neither of "
    r"us)\b.*\bcan",
    "(?:won't|will not|doesn't|does not) work", "(?:falls?|lies|"
    "is|are) outside", "have to turn down",
    r"rules? (?:\w+ )?out", "rules? against", "(?:i|we) failed to", "reports? an error",
    "(?:above|beyond|outside|out of) (?:my|our)", "(?:told|instructed|"
    "required|asked) not to", "stays? (?:as|the way) (?:it is|they are|is)",
    "only (?:able|allowed|permitted|authori[sz]ed) to", r"i (?:can|may|could)\b[^.?!]*\bbut "
    r"(?:not|no)",
    r"(?:no longer|not)(?: \w+)? (?:possible|allowed|permitted|available|an option)", "nope",
    r"(?:is|are)(?: \w+)? (?:unavailable|disabled|out of order|out of service)",
    r"return(?:s|ed) an error", "an error (?:occurred|came up|has occurred)", r"due to an? "
    r"(?:\w+ )?(?:error|failure|fault)",
    r"(?:i|we)(?:'m| am| are|'re)?(?: (?:really|so|very|currently|simply|therefore|also|still|"
    r"unfortunately|afraid(?: that)?|sorry,? but i))* (?:can't|cannot|can not|could not|couldn't|"
    r"won't|will not|not able|unable|don't have|do not have|lack|must (?:decline|refuse|deny)|"
    r"have to (?:decline|refuse|deny|reject)|have (?:declined|refused)|had to decline|"
    r"not (?:allowed|permitted|authori[sz]ed)|declined?|refused?|may not)",
    r"\w+'ve (?:had to decline|"
    r"declined)", "unable to", "not be able", "impossible", "unfortunately", "must decline",
    r"\w+(?:n't| not) (?:be )?(?:possible|allowed|permitted|available|eligible|supported|"
    r"offered|accepted|covered|"
    r"something (?:i|we) can|a reason|among|one of)",
    "(?:cannot|can't|could not|couldn't|may not|(?<!you )won't) be",
    r"(?:against|violates?|outside|beyond|not within|prohibited by|forbidden by) (?:the |our |"
    r"my )?"
    r"(?:\w+ )?(?:policy|policies|rules?|scope|ability|abilities|capabilit\w+)",
    r"(?:do not|don't|does not|doesn't|won't|will not) (?:let|allow|permit|enable) (?:me|us|you|"
    r"for|this|that|it)", r"(?:we|i) (?:do not|don't) (?:offer|accept|support|provide|do)",
    "regrettably", "as (?:declined|refused|rejected)", "nothing (?:more |else )?(?:i|we) can",
    "too late to", "(?:have|need) to (?:leave|keep)", "(?:would|'d) (?:rather|prefer) not",
    r"(?:not|isn't) in my power", r"(?:break|breach)\w* (?:the|our) rules?",
    "beyond (?:what|my)", "out of the question", "(?:have to|must) say no",
    r"(?:is not|isn't|are "
    r"not|aren't) (?:a thing|ones?|something) (?:we|i|that|which)",
    "(?:policy|rules?) (?:do not|don't|does not|doesn't|forbids?|prohibits?|prevents?)",
    "(?:has been|have been|had been|was|were|is) (?:declined|refused|denied|rejected)",
    r"i(?:'m| am) (?:sorry|afraid)\b.{0,30}\bbut", "none of (?:my|the) tools",
    "can only (?:help|assist)", "no (?:tool|way|option|function|means) (?:to|for|that|of)",
    r"turn (?:this|it|that|you|your request)\b.{0,20}\bdown",
    r"(?:is|are|was|were) (?:\w+ly )?(?:excluded|exempt|limited to|restricted to|off[- ]limits|"
    r"ruled out)",
    r"^\W*(?:no, |sorry, )?not (?:possible|allowed|permitted|available|eligible|supported)",
    r"nothing in (?:my|our)", r"(?:rules?|policy|policies)\b.{0,40}\bno",
    r"you(?:'d| would|'ll| will)? (?:(?:have|need|want) to|must|should|better|may want to|might "
    r"want to) (?:ask|see|contact|call|"
    r"visit|speak|go to|go through|turn to|phone|talk)", "had to (?:reject|refuse|deny|decline|"
    "turn)",
    "(?:i|we)(?:'m| am|'re| are)? (?:must not|mustn't|not supposed|not meant|shouldn't|should "
    "not)",
    "hands are tied", "end of the (?:road|line)", r"(?:hit|reached|exhausted|used up) (?:\w+ "
    r")*(?:limit|maximum|allowance)",
    r"(?:have|has|need|needs|must)(?: to)?(?: be)? (?:go|made|done|handled|dealt|arranged|"
    r"come)\b.{0,20}\b"
    r"(?:through|via|in person|office|staff|at the|by the)",
    "there (?:is|are|was|were) no", r"no \w+ (?:was|were) found",
    r"(?<!you'll )(?<!you will )(?<!you're )(?<!you are )(?:no|not|n't|never|nor|without|"
    r"lack\w*|missing|\w+n't)(?: \w+){0,4}? (?:able|allowed|permitted|"
    r"permission|functions?|functionality|tools?|feature|ways?|means|authority|authori[sz]ed|"
    r"eligible|supported|capable|set up|equipped|designed|built|trained|supposed to|right "
    r"(?:one|person|place|contact)|capabilit\w+|entitled|remit|scope|mandate|"
    r"in a position|provision|disposal|mechanism|access|within my|up to me|part of (?:what|my)|"
    r"possibility)(?! yet)",
    r"(?:no|not|\w+n't|nothing|none)(?: \w+){0,4} (?:i|we) (?:can|could|may|am able|are able)",
    r"turned? (?:\w+ )?down", "(?:ruled|knocked) (?:it |that |this )?out", "no can do",
    "(?:something|things?) went wrong", r"technical (?:issue|problem|error|difficult\w+|fault)s?",
    "try again (?:later|tomorrow|another)", "(?:regret|sadly|alas)",
    r"(?:i'm|i am|we're) (?:\w+ )?afraid (?:not|that(?:'s| is) not)", "not going to be",
    r"(?:can|may|could|am|are|is|'m) only(?: be)? (?!one\b|\d)(?:\w+ ){0,8}(?:if|when|at least|"
    r"at most|within|before|once|until|"
    r"who|that|for)", r"only (?:\w+ ){1,8}(?:can|may|could) be",
    r"too (?:late|early|close|far|soon|short notice|old)", r"(?:exceeds?|over|above|past) "
    r"(?:the|my|our) (?:\w+ )?"
    r"(?:limit|maximum|deadline|cut-?off|allowance|authority)", "(?:ineligible|prohibited|"
    "forbidden)",
    r"(?:have|need|has|had) to (?:pass on|say no|disappoint|stop)", r"(?:so|answer is|afraid "
    r"it's a) no(?=[,.!]|$)",
    r"(?:not|n't)(?: \w+){0,2} (?:my|our) (?:job|area|department|responsibility|call)",
    r"(?:don't|do not|doesn't|does not|didn't|did not) (?:meet|fulfil|qualify|satisfy)\w*",
)  # fmt: skip
UNVERIFIED = re.compile(
    r"\b(?:can't|cannot|can not) (?:tell|say|promise)(?: \w+){0,2} yet\b|"
    r"\b(?:until|till|before|unless) (?:i|we|you|your)\b.{0,30}\b(?:verif|identif|authentic|"
    r"check|look|found|located|confirmed)"
)
"""What cannot be done yet, and what comes first is the agent's to do."""
COULD_YOU = re.compile(
    r"\b(?:could|can|would|will) you(?: please| kindly| also| just)* (\w+)\b[^.?!]*\?"
)
"""What the other one is asked to do; the group is the verb."""
HANDED = _any(
    r"(?:(?:hand|pass|transfer|forward|refer|connect|rout|escalat)\w*|sen[dt]|speak to|talk to|"
    r"turn "
    r"to)\b.{0,60}\b(?:colleague|human|"
    r"agent|person|specialist|team|staff|supervisor|representative|manager|department|someone|"
    r"support)s?",
    r"(?:colleague|specialist|team member|representative|human agent|human)s? (?:is going to|"
    r"will|"
    r"can|shall|would)",
    r"(?:transfer|pass|hand|forward)\w* (?:this|it|you|your (?:request|report|case|complaint|"
    r"question|"
    r"query|concern))\b.{0,20}\b(?:on|over|along|to (?:them|him|her|a|the|our|my|one of|"
    r"someone))",
    r"(?:forward|escalat|referr)ed (?:this|it|that|you|your|the)\b",
    r"(?:colleague|team|staff|librarian|someone|specialist|department|desk|office|agent|manager|"
    r"representative|human)s? (?:will|must|has to|needs to|is going to|are going to|"
    r"can) (?:\w+ )?(?:be in touch|get (?:in "
    r"touch|back)|contact|reach|call|follow|handle|look|decide|take)|"
    r"(?:colleague|specialist|human)s? takes? (?:over|this|it)",
    r"escalat(?:e|ed|ing)", r"put(?:ting)? (?:you|this) through to", r"transfer(?:red|ring)? you",
    r"hand(?:ed|ing)? (?:this|it|you|your)\b.{0,30}\bover",
    r"(?:with|to|by|at|of|for|alert\w*|inform\w*|notif\w+|involv\w+|ask(?:ing)?|(?:'ve|have) "
    r"asked|get|got) (?:(?:one of )?(?:our|my|the|another|human) (?:[\w-]+ ){0,3}|"
    r"an? (?:human |senior )?(?=colleague|human|specialist|supervisor|manager))"
    r"(?:colleagues?|team|specialists?|manager|supervisor|department|human|person|staff|expert|"
    r"advis[eo]r)",
    r"(?:contact|call|phone|ring|visit|approach|reach out to|turn to|get in touch with|speak to|"
    r"speak with|go to) (?:the|our|"
    r"your|an?) (?:[\w-]+ )?(?:shop|clinic|office|library|desk|reception|hotline|helpline|line|"
    r"branch|counter|"
    r"museum|venue|provider|school|depot|town hall|authority)",
    r"(?:colleague|human|specialist|manager|supervisor|team)s? (?:has|have|took|is|are) (?:\w+ "
    r")?(?:taken|taking|over|dealing|handling|looking)",
    r"(?:someone|somebody|people) (?:from|in|at) (?:the|our|my|charge)",
    r"(?:desk|office|team|colleague|staff|branch|department|specialist|manager|"
    r"person)s?\b.{0,20}\b(?:handles?|deals? with|looks? after|"
    r"takes? care|sees? to|(?:is|are) responsible)", r"staff\b.{0,20}\bwill",
    r"contact (?:the|our|customer|a) (?:\w+ )?(?:support|staff|team|service|desk|office)",
)  # fmt: skip
DONE = _any(
    r"(?:just )?finished \w+ing", "managed to", "(?:is|are) (?:now )?live",
    r"(?:has|have|had|was|were|got|\w+'(?:ve|s)|is|are)(?: now| been| already| just| also| "
    r"successfully| all| gone ahead and)* (?P<verb>\w+?(?:ed|en|id|ut|et|ne|lt|un|old|wn|ade|"
    r"ent|eft))",
    r"(?:has|have|had|was|were)(?: not|n't)(?: yet| been)* (?P<undone>\w+ed)",
    "success(?:ful|fully)?", "(?<!be )(?<!get )(?:all )?(?:done|completed?)", "all set",
    r"(?:went|gone) through", r"worked(?= out|\W|$)", "succeeded", "in place", "in effect",
    "taken effect",
    r"(?<![\"'] )(?<![\"'])i (?!need)(?:also |just |only |already |went ahead and )*"
    r"(?P<past>\w+ed|found)",
    "taken care of", r"^(?:(?:ok|okay|great|right|good|yes|all)\W+|(?:the |your )?(?:\w+al|"
    r"\w+ion|\w+ment) )?(?P<bare>(?!worked|succeeded)\w+ed|withdrawn|paid)(?=\W*$|[,:])",
)  # fmt: skip
"""It is done, or has been; of a way with a verb, the verb is a group."""
PERFECT = re.compile(r"\b(?:has|have|had|was|were|been|\w+'ve)\b|^i\b")
SUPPOSED = re.compile(
    r"\b(?:will|shall|would|could|can|may|might|must|should|if|once|when|whenever|to be|who|"
    r"people|person|someone|anyone|usually|often|typically|generally|until|unless|before|ensure|"
    r"make sure|how|what|\w+'(?:ll|d))\b"
)
"""What stands before what would be done, or is by others, in one clause with it."""
BREAK = re.compile(r"[,;:](?=\s)")
FOUND = stems(
    "accepted applied approved assigned begun checked cleared complete completed confirmed "
    "corrected decided done dropped fixed found fulfilled gone handled identified informed "
    "left lifted linked listed located locked logged looked made matched notified overdue "
    "owed paid processed put resolved restored seen sent sorted stopped taken told touched "
    "unlocked verified waived"
)
"""What agents say they did besides changes."""
TOLD = _any(
    "is|are|was|were|has|have|had|costs?|shows?|found|see|there's|it's|that's|stands?|remains?",
    "starts?|ends?|falls?|returns?|here (?:is|are)|here's|means|expires?|belongs?|amounts?",
    "leaves?|contains?|includes?|owe|appl(?:y|ies)|comes? to|totals?|runs?|lasts?|covers?",
    "(?:is|are|was|were|has)n't",
)  # fmt: skip
NOTHING = _any(
    "no",
    "not",
    r"\w+n't",
    "none",
    "nothing",
    "already",
    "still",
    "only",
    "now",
    "remains?",
    "here (?:is|are)",
    "here's",
    "i found",
    "i see",
    "found",
)
"""With what a sentence tells something of what the world holds without a value."""
CODE = re.compile(
    r"```\w*\s*\n|`[^`\n]*\w\(|\bdef \w+\(|\b(?:from \w\S* )?import \w|\bcallback\b|\bjson\b|"
    r"\b(?:python|javascript|html|api|snippet|method|regex|script|syntax)s?\b|https?:|"
    r"\bfunction\b.{0,80}\b(?:takes|returns?|accepts|called)\b|^#+ ",
    re.I | re.M,
)
"""Talk of programs, which no user of a service desk is told."""
HOW_TO = _any(
    r"(?:follow(?:ing)?|these|are the|some|few|simple) steps", r"steps (?:to|for|you)",
    r"here(?:'s| is| are) (?:how|an example|some (?:tips|examples))", "step-by-step",
)  # fmt: skip
"""Instructions to somebody, by which no agent tells what it did."""
BLANK = re.compile(
    r"[\[<{](?:the |your |my |insert |enter |customer |user |client |agent |company |full )*"
    r"(?:name|date|title|number|email|address|company|customer|user|phone|organi[sz]ation|"
    r"position|contact|signature|insert|department|reason|amount|time)\b[^\]>}\n]{0,40}[\]>}]",
    re.I,
)
"""What a template leaves to be filled in."""
NOT_NOW = re.compile(
    r"\b(?:will|shall|going to|would|could|can|may|might|let me|must|needs?|should|if|once|"
    r"someone|people|person|anyone|she|he|usually|often|typically|generally|imagine|suppose|"
    r"for example|until (?:you|i)|when(?:ever)? you)\b|"
    r"^\W*(?:then |and |or )?(?:pick|use|ensure|try|delete|repeat|click|create|run|follow|"
    r"replace|"
    r"type|copy|install|add|remove|make|write|choose|select)"
    r" (?:the|all|an?|your|this|that|sure|to|any|these)\b|"
    r"'(?:ll|d)\b"
)
I_CAN_TELL = re.compile(
    r"\b(?:i|we) (?:can|could|would like to|'d like to|must|may) (?:also |now |"
    r"only )?(?:confirm|see|tell you|inform you|"
    r"report)\b"
)
"""What comes before something that is told."""
I_SEE = re.compile(
    r"^\W*(?:\w+,? )?i (?:understand|see|hear)(?: that)? you(?: want|'d| would| wish| need)"
)
CHATTER = re.compile(
    r"^\W*(?:hello|hi|hey|thank(?:s| you)|sure|certainly|of course|great|ok|okay|understood|"
    r"got it|"
    r"no problem|absolutely|good (?:morning|afternoon|evening|day)|you're welcome|my pleasure|"
    r"welcome|sorry|i apologi[sz]e|i(?:'m| am) (?:happy|glad|here|sorry|ready|an?\b)|have a|"
    r"goodbye|"
    r"bye|one moment|just a moment|please (?:wait|hold)|hold on|perfect|i understand|"
    r"i see(?=\W*$)|"
    r"take care|alright|noted|apologies)\b"
)
MY = re.compile(r"\bmy (?=(\w[^.?!]{0,30}))(?:\w+ (?=(\w[^.?!]{0,30})))?")
MINE = ("email", "name", "full name", "postcode", "account", "legal name", "reason")
"""What users call their own, besides rows."""
NAMES = re.compile(r"[^\s|()\[\]{},;:\"'“”!?#/.]+")
"""Words and keys."""

# How sentences are taken apart ----------------------------------------------------------------

WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+")
CLAUSE = re.compile(r"[,;:.!](?=\s)|\s[-–—]+\s|[–—]")
TO_KNOW = re.compile(
    r"\b(?:know|tell me|ask(?: you)?|say|and|,) (?:which|what|when|how many|how long|how much|"
    r"by how|for how|until when|why|who)\b.*"
)
"""What is asked for beside agreement."""
ONE_OF = re.compile(
    r"\b(?:(?:one|any|some) of|either|options?|possibilities|choose|pick|select|possible|"
    r"allowed|valid|accepted|available|permitted)\b"
    r"[^:?!]{0,40}(?::| are| include) [^:]+(?:,| or )[^:]+"
)
"""One of several things that are listed after it."""
LOST = _any(r"(?:not|n't)(?: quite| really)?(?: sure (?:i|what|that i))? (?:understand|follow|"
r"get what|clear)",
            "unclear", "what you mean")  # fmt: skip
"""Understands too little to propose anything."""
STUTTER = re.compile(r"\b(\w{3,})(?:[\s,.]+\1\b){3,}|\w+(?:_[a-z]+){9,}")
"""The same word again and again."""
OR_SHALL = re.compile(
    r"\bor (?:do|would|should|shall|can|could|may) (?:you|i|we)\b|\bor (?:i|we) (?:can|could|"
    r"would)\b"
)
"""One thing to do or another."""
PARTICIPLE = re.compile(r"\b(withdraw|pay|void|make|take|give|lend|send|do)(?:n|ne|r|en)\b")
"""The verb of what was withdrawn, taken or given."""
HOW_ABOUT = re.compile(r"\b(?:how|what) about (?:i|we|me)\b|\bwhy (?:don't|not) (?:i|we)\b")
GO_ON = re.compile(
    r"\b(?:go|move|carry|press|push) (?:ahead|forward|on|through|for it)\b|"
    r"\byou(?:'re| are) (?:really |still |quite )?(?:happy|fine|ok|okay|comfortable|sure|"
    r"certain)\b|"
    r"\b(?:green light|go-ahead|your (?:ok|okay|consent|approval|permission|agreement))\b|"
    r"\b(?:proceed|continue|goes? ahead)\b"
)
"""To go on with what was named."""
GET_DONE = re.compile(
    r"^(?:take care of|see to|take on|start on|give|do|make)\b|^(?:get|have)\b.{1,60}\b(?:\w+ed|"
    r"withdrawn|done|paid|sent|changed|through|out of the way)\b"
)
REST = re.compile(
    r"\b(?:before|until|unless|if|whether|which|what|when|once|after|about|because|since|as)\b|"
    r"[,;:]\s"
)
"""Begins what is not what is going to be done."""
BUT = _any("but", "though", "however", "unfortunately")
HELP = _any("help|assist|support")
ANY_ROW = _any("any|another|others?")
"""Of no change in particular."""
WH_OR_ONE_OF = _any("which|what|when|how|why|who|where|whose", "one of", "either")
LIGHT = frozenset("use take start give go do make try work offer".split())
"""Verbs that change something with what is named beside them."""
PRESENT = re.compile(
    r"(?:^|[,:;] |\bthen |\bfirst |\band |\bok |\bokay )i (?:now |then |first |next |hereby |"
    r"also |just )*"
    r"((?!set|put|let)[a-z]+(?<!ed)(?:(?<=do) the \w+)?)\b"
)
"""I do it now; the group is the verb."""
AFTERWARDS = re.compile(
    r"^then\b|\bright after\b|\bafter(?:wards?| that)\b|\bi(?:'ll| will) then\b"
)
"""What waits for what was asked before."""
ACCEPT = re.compile(
    r"\bwould you (?:accept|be (?:ok|okay|happy|fine|willing|open|interested))\b|\byou live with\b"
)
"""Whether something else would be taken."""
EAGER = _any(r"(?:glad|happy|pleased|love|delighted) to")
"""Would do it, once what is asked for is known."""
NOTHING_ELSE = re.compile(
    r", (?:so|and) (?:you|there|no)\b[^,?!]*\b(?:else|more|further)\b[^,?!]*$"
)
"""The end of a sentence that tells that nothing is left to do."""
YOU_LATER = re.compile(r"^(?:(?:please )?note (?:that )?|but |and )?you(?:'ll| will| won't)\b")
"""What is true of the user after a change."""
