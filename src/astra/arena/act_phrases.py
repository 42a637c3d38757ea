"""The phrases by which agents propose, offer, ask, refuse and report; all texts are normalised."""

from __future__ import annotations

import re

from astra.arena.claims import stems


def any_of(*ways: str) -> re.Pattern[str]:
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
CLOSING = any_of(
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
IF_WANTED = any_of("let me know", "confirm", "just say", "please (?:say|reply)", "tell me if")
WISH = any_of(
    r"you(?: want|'d like| would like| wish|'re asking| are asking)(?! to know)", "(?:would|"
    r"will) be",
    "rather than", "instead of",
)  # fmt: skip
"""How a change is named that no verb of a tool names."""
WAITING = any_of(
    r"(?:once|after|as soon as|when|if|until) (?:i (?:have|know|receive|get|verify)|you "
    r"(?:have |can |could |'ve )?(?:provide|tell|give(?! (?:me |us )?(?:(?:the|your|a|an) "
    r")*(?:go|ok|appro|cons|nod|green|word|yes|confirm|permission|thumbs))|"
    r"let|share|specify|choose|pick|select|send|"
    r"supply|identify|verify)\w*)",
    r"so (?:that )?(?:i|we) can", r"in order (?:for me )?to", r"before i (?:can|proceed|do|make|"
    r"go)",
)  # fmt: skip
"""What is only going to be done when something else is known."""
NO_CHANGE = any_of(
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

WH = any_of("which|what|when|how|why|who|where|whose")
QUESTION = any_of(
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
PICK = any_of(
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
ONE_OR_OTHER = any_of(
    r"one\b.*\bor\b.*\bone",
    r"the first\b.*\bor\b",
    "(?:would you|"
    r"you'd) rather",
    "either",
    "(?:do|did) you mean",
    "(?:how|what) about",
    "prefer",
)
GIVE = any_of(
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
ANY = any_of("is there (?:an?|any)", "do you have (?:an?|any)", "are there any")
"""Asks for a datum even where what follows offers to read it."""
PLEASE = re.compile(r"^(?:your|the|just|and|only)\b.*\bplease\W*$")
